//! Parsing of store addresses: which are accepted, what each error names, and that no password is shown.

use refit_backend::{Error, EtcdAddress};

#[test]
fn good_addresses_are_understood() {
    for (address, shown) in [
        ("etcd://a", "etcd://a:2379/refit"),
        ("etcd://a:1", "etcd://a:1/refit"),
        ("etcd://a:1/", "etcd://a:1/refit"),
        ("etcd://a:1,b-c.d:2,127.0.0.1:3/x/y", "etcd://a:1,b-c.d:2,127.0.0.1:3/x/y"),
        ("etcd://[::1]:1,[2001:db8::1]", "etcd://[::1]:1,[2001:db8::1]:2379/refit"),
        ("etcd://me:hunter2@a:1/p", "etcd://me@a:1/p"),
        ("etcd://m%40e:hunter2%3A%2F%40@a:1/p", "etcd://m@e@a:1/p"),
        ("etcd://me@a:1?password_file=/run/secret", "etcd://me@a:1/refit"),
        ("etcd://a:1?ca=/ca.pem&cert=/c.pem&key=/k.pem&tls=true", "etcd://a:1/refit"),
        ("etcd://a:1?tls=false", "etcd://a:1/refit"),
    ] {
        let parsed = EtcdAddress::parse(address).unwrap();
        assert_eq!(parsed.to_string(), shown);
        assert!(!format!("{parsed:?}").contains("hunter2"), "{parsed:?}");
    }
}

#[test]
fn address_errors_name_the_mistake_and_no_password() {
    let long = format!("etcd://a/{}", "x".repeat(300));
    for (address, expected) in [
        ("http://a:1", "must start with etcd://"),
        ("me:hunter2@a:1", "must start with etcd://"),
        ("etcd://", "a host is missing"),
        ("etcd:///p", "a host is missing"),
        ("etcd://a,,b", "a host is missing"),
        ("etcd://:1", "a host is missing"),
        ("etcd://a b:1", "\"a b\" is not a host name"),
        ("etcd://a:x", "the store address etcd://a:x: port \"x\" is not a number"),
        ("etcd://me:hunter2@a:x", "the store address etcd://***@a:x: port \"x\" is not a number"),
        ("etcd://a:", "port \"\" is not a number"),
        ("etcd://a:-1", "port \"-1\" is not a number"),
        ("etcd://a:0", "port 0"),
        ("etcd://a:65536", "port 65536 is above 65535"),
        ("etcd://::1:2379", "an IPv6 address goes in brackets"),
        ("etcd://[::1", "has no \"]\""),
        ("etcd://[a]:1", "\"a\" is not an IPv6 address"),
        ("etcd://[::1]1", "\"1\" after \"]\" is not a port"),
        ("etcd://a/p//q", "has an empty part"),
        ("etcd://a/p/", "has an empty part"),
        ("etcd://a/%zz", "the prefix \"/%zz\" is wrongly percent-encoded"),
        (long.as_str(), "a prefix of 301 bytes is too long"),
        ("etcd://me@a:1", "user \"me\" has no password"),
        ("etcd://me:@a:1", "user \"me\" has no password"),
        ("etcd://:hunter2@a:1", "the user before \"@\" is empty"),
        ("etcd://me:hunter2%@a:1", "the password is wrongly percent-encoded"),
        ("etcd://me:hunter2/x@a:1", "%2F"),
        ("etcd://me:hunter2?x@a:1", "%3F"),
        ("etcd://me:hunter2@x@a:1", "%40"),
        ("etcd://me:hunter2@a:1?password_file=/f", "both a password and password_file"),
        ("etcd://a:1?password_file=/f", "password_file is given, but no user"),
        ("etcd://a:1?password=hunter2", "\"password\" is not an option"),
        ("etcd://a:1?tls=true", "TLS needs ca=FILE"),
        ("etcd://a:1?tls=maybe", "neither true nor false"),
        ("etcd://a:1?tls=false&ca=/f", "contradicts"),
        ("etcd://a:1?cert=/f&key=/f", "TLS needs ca=FILE"),
        ("etcd://a:1?ca=/f&cert=/f", "no key"),
        ("etcd://a:1?ca=/f&key=/f", "no cert"),
        ("etcd://a:1?ca", "name=value"),
        ("etcd://a:1?ca=", "ca is empty"),
        ("etcd://a:1?ca=/f&ca=/g", "ca is given twice"),
    ] {
        let error = EtcdAddress::parse(address).unwrap_err();
        assert!(matches!(error, Error::BadAddress(_)), "{address}: {error:?}");
        let shown = error.to_string();
        assert!(shown.starts_with("the store address "), "{shown}");
        assert!(shown.contains(expected), "{address}: {shown}");
        assert!(!format!("{shown}{error:?}").contains("hunter2"), "{shown}");
    }
}
