//! `refit-update recover` where the authorities that the host trusts cannot be read: it needs none of them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use refit_testbed::directory;

use crate::cluster::{Image, said};

/// A certificate of no authority: no client can be made that trusts it.
const LEAF: &str = "-----BEGIN CERTIFICATE-----
MIIBcTCCARigAwIBAgIUJqK/wBeFf2CGpPK8VL3XRV7bet8wCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEbGVhZjAgFw0yNjExMTgwMzMxMDRaGA8yMTI2MTAyNTAzMzEw
NFowDzENMAsGA1UEAwwEbGVhZjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABIFz
QKDsCltkomHeGFef9HiEl9EPg+Iwm8FYpfM0qzm4osyifpk3EWZwftSHAmB/pt7F
/Q58zdThDeudXmTwa0ujUDBOMB0GA1UdDgQWBBRyTrCbmlpSRWiOyCxeyFmmJiXY
tjAfBgNVHSMEGDAWgBRyTrCbmlpSRWiOyCxeyFmmJiXYtjAMBgNVHRMBAf8EAjAA
MAoGCCqGSM49BAMCA0cAMEQCIEYpgDueBCHtdYzn9nlulJ637tX5uqrOFgsNE9+D
qf7NAiAyb2o3As6BHLJsYGd0Jh4drE/LXrL/9/+KFyI9VpszPg==
-----END CERTIFICATE-----
";

#[test]
fn a_host_with_a_broken_trust_file_rolls_back() {
    for trust in [&b"\0\xffgarbage"[..], LEAF.as_bytes()] {
        let folder = directory();
        let image = Image { root: folder.path().join("image") };
        let data = image.root.join("var/lib/refit");
        for version in ["1.0.0", "2.0.0"] {
            fs::create_dir_all(data.join("versions").join(version)).unwrap();
        }
        symlink("versions/2.0.0", data.join("active")).unwrap();
        let journal = data.join("versions/journal.json");
        let switching = r#"{"from":"1.0.0","to":"2.0.0","step":"running","backed_up":false,"runs":false}"#;
        fs::write(&journal, switching).unwrap();
        fs::write(data.join("trust.pem"), trust).unwrap();

        said(&image.update(&["recover"]));
        assert_eq!(fs::read_link(data.join("active")).unwrap(), Path::new("versions/1.0.0"));
        assert!(!journal.exists());
    }
}

/// The trust file above is one that matters: whatever asks the control plane cannot go on with it.
#[test]
fn only_commands_that_ask_the_control_plane_need_the_trust_file() {
    let folder = directory();
    let image = Image { root: folder.path().join("image") };
    let data = image.root.join("var/lib/refit");
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("trust.pem"), LEAF).unwrap();
    let refused = image.update(&["enable", "--proxy", "127.0.0.1:1"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(told.contains("it is not one of an authority"), "{told}");
    said(&image.update(&["disable"]));
}
