//! The precedence of settings, and the errors of invalid ones.

use std::path::Path;

use crate::host::{Host, REFIT, Ran};

fn server(host: &Host, arguments: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = host.command(Path::new(REFIT), &[&["server"], arguments].concat());
    Ran::of(command.envs(variables.iter().copied()))
}

#[test]
fn a_flag_is_nearer_than_a_variable_and_that_than_the_file() {
    let host = Host::new();
    // None of these addresses is one of this host but the loopback's, so what is bound is what was taken.
    let file = "cluster_name: from-file\nlisten: 127.0.0.2:0\ndiag_listen: 127.0.0.2:0\n\
                public_names: [file.example]\n";
    let file = host.write("refit.yaml", file);
    let from_file = ["--config", file.to_str().unwrap()];
    let data = |name: &str| host.path(name).to_str().unwrap().to_owned();

    let server = host.serve_with(&[&from_file[..], &["--data-dir", &data("a")]].concat(), &[]);
    assert_eq!(server.fact("Cluster"), "from-file");
    assert!(server.address().starts_with("127.0.0.2:"), "{}", server.greeting);
    assert!(server.fact("Health").starts_with("http://127.0.0.2:"), "{}", server.greeting);

    let variables = [
        ("REFIT_CLUSTER_NAME", "from-variable"),
        ("REFIT_LISTEN", "127.0.0.3:0"),
        ("REFIT_DATA_DIR", &data("b")),
    ];
    let server = host.serve_with(&from_file, &variables);
    assert_eq!(server.fact("Cluster"), "from-variable");
    assert!(server.address().starts_with("127.0.0.3:"), "{}", server.greeting);
    assert!(server.fact("Health").starts_with("http://127.0.0.2:"), "{}", server.greeting);
    assert!(host.path("b/admin/endpoint").exists());

    let flags = ["--cluster-name", "from-flag", "--listen", "127.0.0.4:0", "--data-dir", &data("c")];
    let server = host.serve_with(&[&from_file[..], &flags].concat(), &variables);
    assert_eq!(server.fact("Cluster"), "from-flag");
    assert!(server.address().starts_with("127.0.0.4:"), "{}", server.greeting);
    assert!(server.fact("Health").starts_with("http://127.0.0.2:"), "{}", server.greeting);
    assert!(host.path("c/admin/endpoint").exists());
}

#[test]
fn the_file_can_be_named_by_a_variable() {
    let host = Host::new();
    let file = host.write("refit.yaml", "cluster_name: by-variable\n");
    let server = host.serve_with(&[], &[("REFIT_CONFIG", file.to_str().unwrap())]);
    assert_eq!(server.fact("Cluster"), "by-variable");
}

#[test]
fn a_file_that_cannot_be_used_is_refused_with_the_place() {
    let host = Host::new();
    let said: [(&str, &[&str]); 5] = [
        ("listen: 127.0.0.1:0\n  lisen: x\n", &["line 2"]),
        ("diag_listen: 127.0.0.1:0\nlisen: 127.0.0.1:0\n", &["lisen", "line 2", "column 1", "listen"]),
        ("listen: [\n", &["line"]),
        ("just text\n", &["line 1"]),
        ("listen: nowhere\n", &["listen:", "nowhere", "ADDRESS:PORT"]),
    ];
    for (text, expected) in said {
        let file = host.write("bad.yaml", text);
        let error = server(&host, &["--config", file.to_str().unwrap()], &[]).bad(2);
        for word in expected {
            assert!(error.contains(word), "{word:?} is not in {error}");
        }
        assert!(error.contains("bad.yaml") || text.contains("nowhere"), "{error}");
    }
    let missing = server(&host, &["--config", "missing.yaml"], &[]).bad(2);
    assert!(missing.contains("missing.yaml cannot be read: No such file"), "{missing}");
}

#[test]
fn values_that_cannot_be_used_are_refused_with_their_name() {
    let host = Host::new();
    let cases: [(&[&str], &[&str]); 8] = [
        (&["--listen", "3080"], &["listen:", "3080", "ADDRESS:PORT"]),
        (&["--listen", "127.0.0.1:99999"], &["listen:", "ADDRESS:PORT"]),
        (&["--diag-listen", "x:1"], &["diag_listen:", "ADDRESS:PORT"]),
        (&["--cluster-name", "A b"], &["cluster_name:", "expected"]),
        (&["--backend", "postgres://x"], &["backend:", "postgres", "sqlite:PATH"]),
        (&["--backend", "sqlite:"], &["backend:", "needs a path"]),
        (&["--backend", "etcd://"], &["backend:"]),
        (&["--public-names", "a b"], &["public_names:", "a b"]),
    ];
    for (arguments, expected) in cases {
        let error = server(&host, arguments, &[]).bad(2);
        for word in expected {
            assert!(error.contains(word), "{word:?} is not in {error}");
        }
    }
    let log = server(&host, &[], &[("REFIT_LOG", "loud=very")]).bad(2);
    assert!(log.contains("REFIT_LOG") && log.contains("loud=very"), "{log}");
    assert!(
        !host.path("data").exists() && !host.path(".local").exists(),
        "nothing is made before all is good"
    );
}

#[test]
fn a_store_can_be_in_another_place() {
    let host = Host::new();
    let store = format!("sqlite:{}", host.path("elsewhere/store.db").display());
    let server = host.serve_with(&["--backend", &store], &[]);
    assert!(server.fact("Store").contains("elsewhere/store.db"), "{}", server.greeting);
    assert!(host.path("elsewhere/store.db").exists() && !host.path("data/backend").exists());
}
