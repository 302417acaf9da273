//! Every setting can be given, and every error in a configuration is reported by its place.

use super::*;

const PIN: &str = "sha256:0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f";

fn checked(text: &str) -> Result<AgentConfig, String> {
    file::parse(text)?.check(Path::new("/d")).map_err(|error| error.to_string())
}

#[test]
fn everything_can_be_set() {
    let config = checked(&format!(
        "refit:
  data_dir: /srv/refit
  nodename: web-1
  proxies: [a.example.com, 'b.example.com:443', '[::1]:9']
  token: s3cret
  ca_pin: {PIN}
  roles: [node, kube]
  labels: {{environment: staging, rack: 7, spot: true}}
  commands:
    - name: arch
      command: ['/bin/uname', '-p']
      period: 1h0m0s
  unreachable_exit: 90s
ssh_service:
  labels: {{zone: eu-1}}
  commands:
    - {{name: arch, command: [uname], period: 30s}}
"
    ))
    .unwrap();
    assert_eq!(config.data_dir.root(), Path::new("/srv/refit"));
    assert_eq!(config.nodename.as_ref().map(NodeName::as_str), Some("web-1"));
    let proxies: Vec<_> = config.proxies.iter().map(ToString::to_string).collect();
    assert_eq!(proxies, ["a.example.com:3080", "b.example.com:443", "[::1]:9"]);
    assert_eq!(config.token.unwrap().reveal(), "s3cret");
    assert_eq!(config.ca_pin.unwrap().to_string(), PIN);
    assert_eq!(config.roles, BTreeSet::from([AgentRole::Node, AgentRole::Kube]));
    assert_eq!(config.instance_labels.to_string(), "environment=staging,rack=7,spot=true");
    let arch = LabelCommand {
        name: "arch".into(),
        command: vec!["/bin/uname".into(), "-p".into()],
        period: Duration::from_secs(3600),
    };
    assert_eq!(config.instance_commands, [arch]);
    assert_eq!(config.node_labels.to_string(), "zone=eu-1");
    assert_eq!(config.node_commands[0].period, Duration::from_secs(30));
    assert_eq!(config.unreachable_exit, Duration::from_secs(90));
}

#[test]
fn little_has_to_be() {
    let config = checked("refit:\n  proxy: host\n").unwrap();
    assert_eq!(config.data_dir.root(), Path::new("/d"));
    assert_eq!(config.roles, BTreeSet::from([AgentRole::Node]));
    assert_eq!(config.unreachable_exit, DEFAULT_UNREACHABLE_EXIT);
    assert!(config.nodename.is_none(), "the host has one");
    assert!(config.token.is_none() && config.ca_pin.is_none() && config.instance_labels.is_empty());
    for empty in ["", "# nothing\n", "refit:\n", "refit: {}\nssh_service:\n"] {
        assert_eq!(file::parse(empty).unwrap(), Settings::default(), "{empty:?}");
    }
}

#[test]
fn unknown_and_wrong_keys_are_refused_with_their_place() {
    for (text, what, line) in [
        ("refit:\n  proxy: a\n  tokens: b\n", "tokens", "line 3"),
        ("refit:\n  proxy: a\nauth_service: {}\n", "auth_service", "line 3"),
        ("refit:\n  commands:\n    - name: a\n      comand: [x]\n", "comand", "line 4"),
        ("refit:\n  proxy: [a, b]\n", "", "line 2"),
        ("refit:\n  proxy: a\n  proxy: b\n", "", "line 3"),
        ("refit:\n  labels: {a: 1, a: 2}\n", "", "line 2"),
        ("refit:\n  roles: node\n", "", "line 2"),
        ("refit: [\n", "", "line"),
    ] {
        let refused = file::parse(text).unwrap_err();
        assert!(refused.contains(what) && refused.contains(line), "{text:?}: {refused}");
    }
    let both = file::parse("refit:\n  proxy: a\n  proxies: [b]\n").unwrap_err();
    assert_eq!(both, "refit.proxy and refit.proxies are both set; keep one of them");
}

#[test]
fn every_fault_is_told_with_its_path() {
    let errors = checked(
        "refit:
  data_dir: relative
  nodename: 'web 1'
  proxies: ['https://a', b, b]
  token: ''
  ca_pin: md5:0
  roles: [node, root]
  labels: {'a b': c}
  commands:
    - {name: x, command: [], period: 1h}
    - {name: x, command: [a], period: 5s}
    - {name: y, command: [a], period: soon}
  unreachable_exit: 8d
ssh_service:
  labels: {arch: x}
  commands:
    - {name: arch, command: [a], period: 1m}
",
    )
    .unwrap_err();
    let places: Vec<_> = errors.lines().skip(1).map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(
        places,
        [
            "refit.data_dir",
            "refit.nodename",
            "refit.proxies[0]",
            "refit.proxies[2]",
            "refit.token",
            "refit.ca_pin",
            "refit.roles[1]",
            "refit.labels.a b",
            "refit.commands[0].command",
            "refit.commands[1].name",
            "refit.commands[1].period",
            "refit.commands[2].period",
            "refit.unreachable_exit",
            "ssh_service.commands[0].name",
        ],
        "{errors}"
    );
    let missing = checked("").unwrap_err();
    assert!(missing.contains("refit.proxy: is missing"), "{missing}");
    let many: String = (0..65).map(|n| format!("    l{n}: v\n")).collect();
    let many = checked(&format!("refit:\n  proxy: a\n  labels:\n{many}")).unwrap_err();
    assert!(many.contains("more than the 64 labels"), "{many}");
}

#[test]
fn the_nearer_setting_holds() {
    let of = |proxy: &str| Settings { proxies: Some(vec![proxy.into()]), ..Settings::default() };
    let file = Settings { token: Some(Token::new("t")), ..of("file") };
    let merged = of("flag").over(of("env")).over(file);
    assert_eq!(merged.proxies, Some(vec!["flag".to_owned()]));
    assert_eq!(merged.token, Some(Token::new("t")));
}

#[test]
fn the_token_is_not_shown() {
    let settings = file::parse("refit:\n  proxy: a\n  token: s3cret\n").unwrap();
    assert!(!format!("{settings:?}").contains("s3cret"));
    assert!(!format!("{:?}", settings.check(Path::new("/d")).unwrap()).contains("s3cret"));
    let refused = checked("refit:\n  proxy: a\n  token: \"s3cret\\n\"\n").unwrap_err();
    assert!(!refused.contains("s3cret") && refused.contains("refit.token"), "{refused}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = Settings::read(Path::new("/no/such.yaml")).unwrap_err().to_string();
    assert!(error.starts_with("the configuration file /no/such.yaml cannot be read:"), "{error}");
}
