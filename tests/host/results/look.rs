//! What people see, whole, at 80 and at 160 columns.

use super::sample::{demo, id, scratch, store};
use crashlab::report::human;
use crashlab::report::look::Look;
use crashlab::results::{list, read, story};

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

#[test]
fn the_story_of_a_trial() {
    let scratch = scratch();
    demo(&scratch.results, RUN);
    let run = read::find(&scratch.results, RUN).unwrap();
    for (name, trial) in
        [("story", "double-refund/1"), ("story_drill", "double-refund@flaky/1"), ("story_not_run", "slow-lookup/3")]
    {
        let story = story::read(&run, run.trial(trial).unwrap()).unwrap();
        for width in [80, 160] {
            let shown = text(|out| human::story(&story, &Look::plain(width), out));
            assert!(shown.lines().all(|line| line.chars().count() <= width), "{shown}");
            insta::assert_snapshot!(format!("{name}_{width}"), shown);
        }
    }
}

#[test]
fn the_stored_runs_as_a_table() {
    let scratch = scratch();
    let mut first = demo(&scratch.results, RUN);
    first.run = id("20260102T030406Z-aaaa");
    first.tag = Some("nightly\u{1b}[2J".to_owned());
    store(&scratch.results, first);
    std::fs::create_dir(scratch.results.join("runs/20260102T030407Z-bbbb")).unwrap();
    let runs = list::list(&scratch.results).unwrap();
    for width in [80, 160] {
        insta::assert_snapshot!(format!("list_{width}"), text(|out| human::runs(&runs, &Look::plain(width), out)));
    }
}
