//! `refitctl web login`: its address signs a browser in, once.

use std::process::Command;

use rustix::process::Signal;

use crate::host::Host;

fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl").args(["-sk", "-i"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_address_is_printed_that_opens_the_dashboard_and_nothing_of_it_is_logged() {
    let host = Host::new();
    let mut server = host.serve_with(&[], &[("REFIT_LOG", "trace")]);
    let said = host.ctl(&["web", "login", "--ttl", "1h"]).good();
    assert!(said.contains("it works once") && said.contains("You are signed in until"), "{said}");
    let told = host.ctl(&["web", "login", "--format", "json"]).json();
    let url = told["url"].as_str().unwrap();
    assert!(told["session_expires"].as_str() > told["expires"].as_str(), "{told}");
    let (site, code) = url.split_once("/web/login/").unwrap();
    let page = curl(&[url]);
    assert!(page.contains("200") && page.contains("id=\"sign-in\""), "{page}");
    let signed_in = curl(&["-X", "POST", "-H", &format!("Origin: {site}"), url]);
    assert!(signed_in.contains("303"), "{signed_in}");
    let cookie = signed_in.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = cookie.split(';').next().unwrap();
    let page = curl(&["-H", &format!("Cookie: {cookie}"), &format!("{site}/web/")]);
    assert!(page.contains("<b>admin</b>") && page.contains("<h1>Fleet</h1>"), "{page}");
    let http1 = curl(&["--http1.1", "-H", &format!("Cookie: {cookie}"), &format!("{site}/web/audit")]);
    assert!(http1.contains("200 OK"), "{http1}");
    for ttl in ["1s", "25h"] {
        let refused = host.ctl(&["web", "login", "--ttl", ttl]);
        assert!(refused.code == Some(2) && refused.stderr.contains("24 hours at most"), "{refused:?}");
    }
    server.signal(Signal::TERM);
    server.ends();
    let log = server.log();
    let secret = cookie.split_once('=').unwrap().1;
    assert!(log.contains("signed in to the dashboard"), "{log}");
    assert!(!log.contains(code), "the code is in the log");
    assert!(!log.contains(secret), "the session is in the log");
}

#[test]
fn who_trusts_what_is_exported_opens_the_dashboard_without_a_warning() {
    let host = Host::new();
    let server = host.serve();
    let pem = host.ctl(&["auth", "export"]).good();
    let file = host.write("ca.pem", &pem);
    let site = format!("https://{}/web/", server.address());
    let ask = |trusted: &[&str]| Command::new("curl").args(["-s"]).args(trusted).arg(&site).output().unwrap();
    let trusted = ask(&["--cacert", file.to_str().unwrap()]);
    assert!(trusted.status.success(), "{trusted:?}");
    assert!(String::from_utf8_lossy(&trusted.stdout).contains("refitctl web login"));
    assert_eq!(ask(&[]).status.code(), Some(60), "nobody trusts it otherwise");
    let told = host.ctl(&["auth", "export", "--format", "json"]).json();
    let pin = host.ctl(&["status", "--format", "json"]).json()["ca_pin"].clone();
    assert_eq!((&told[0]["pin"], told[0]["pem"].as_str()), (&pin, Some(pem.as_str())));
}
