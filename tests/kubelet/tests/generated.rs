//! The Rust code for the kubelet's API is what its published definition gives.

use std::error::Error;
use std::path::Path;

const CODE: &str = "src/v1.rs";

/// Fields that are taken as bytes instead of text, which looks the same on the wire: what device plugins and drivers
/// write there is checked by nobody, and one id that is not UTF-8 must not make a whole answer unreadable.
const BYTES: [(&str, &str); 2] = [("ContainerDevices", "device_ids"), ("CDIDevice", "name")];
const TYPE_BYTES: i32 = 12;

fn generate() -> Result<String, Box<dyn Error>> {
    let mut files = protox::compile(["podresources.proto"], [env!("CARGO_MANIFEST_DIR")])?;
    for message in files.file.iter_mut().flat_map(|file| &mut file.message_type) {
        let of = message.name().to_owned();
        for field in &mut message.field {
            if BYTES.contains(&(&of, field.name())) {
                field.r#type = Some(TYPE_BYTES);
            }
        }
    }
    let out = tempfile::tempdir()?;
    tonic_prost_build::configure()
        .build_client(false)
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .out_dir(out.path())
        .compile_fds(files)?;
    Ok(std::fs::read_to_string(out.path().join("v1.rs"))?)
}

#[test]
fn generated_code_is_current() {
    let wanted = generate().unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(CODE);
    if std::env::var_os("WARPMETER_BLESS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    assert!(found == wanted, "{CODE} is not what the definition gives: run with WARPMETER_BLESS=1");
}
