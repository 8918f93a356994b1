//! What people see, whole, at 80 and at 160 columns.

use super::sample::{demo, scratch};
use crashlab::report::human;
use crashlab::report::look::Look;

const RUN: &str = "20260102T030405Z-k3f9";

fn text(write: impl FnOnce(&mut Vec<u8>) -> anyhow::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_run_at_a_glance() {
    let scratch = scratch();
    let record = demo(&scratch.results, RUN);
    for width in [80, 160] {
        let shown =
            text(|out| human::run(&record, ".crashlabs/runs/20260102T030405Z-k3f9".into(), &Look::plain(width), out));
        insta::assert_snapshot!(format!("glance_{width}"), shown);
    }
}
