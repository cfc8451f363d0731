//! model
mod canonical;
mod explore;
mod oracle;
mod process;
mod store;
mod system;

use explore::Fleet;
use stateright::{Checker, Model};

#[test]
fn every_rule_holds_in_every_state() {
    let faults = std::env::var("LEASEHOLD_MODEL_FAULTS").map_or([1, 1, 2], |text| { let v: Vec<u8> = text.split(',').map(|t| t.parse().unwrap()).collect(); [v[0], v[1], v[2]] });
    let mut threads = 1;
    if let Ok(t) = std::env::var("THREADS") {
        threads = t.parse().unwrap();
    }
    let checker = Fleet { faults }
        .checker()
        .threads(threads)
        .spawn_bfs()
        .report(&mut stateright::report::WriteReporter::new(&mut std::io::stderr()));
    eprintln!("{} {} {}", checker.state_count(), checker.unique_state_count(), checker.max_depth());
    for (n, p) in checker.discoveries() {
        eprintln!("{n}: {:?}", p.into_actions());
    }
}
