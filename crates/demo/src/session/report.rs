//! Reports of the session: the text at the start, a snapshot for the view, and the summary at the end.

use std::time::Duration;

use model::MemberId;

use super::{Ending, Fleet, Killed, Session};
use crate::children::micros;
use crate::examples::resources;
use crate::handover::is_of;
use crate::summary::{Kill, Summary};
use crate::view::{ReplicaView, Snapshot};

/// How many objects that did not converge are named.
const LAGGING: usize = 5;

impl Session {
    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            elapsed: self.elapsed(),
            end: self.timeline.end,
            replicas: (0..self.figures.len()).map(|index| self.replica(index)).collect(),
            shards: self.holdings.len(),
            unowned: self.holdings.unowned(),
            objects: self.tracker.total(),
            applied: self.applied,
            converged: self.tracker.converged(),
            changes: self.tracker.changes(),
            latency: self.tracker.latency().0,
        }
    }

    fn replica(&self, index: usize) -> ReplicaView {
        let replica = &self.children.replicas()[index];
        let scraped = self.figures[index];
        let killed = self.kills.iter().rfind(|killed| killed.index == index);
        let state = match (killed, scraped.last) {
            (Some(killed), _) if !replica.is_running() => {
                format!("killed {} s ago", self.clock.now().since(killed.at).as_secs())
            }
            (_, Some(_)) => "running".to_owned(),
            (_, None) => "starting".to_owned(),
        };
        ReplicaView {
            name: replica.name().to_owned(),
            state,
            coordinator: is_of(self.coordinator.as_ref(), replica.name()),
            shards: self.holdings.of(replica.name()),
            dead: !replica.is_running(),
            rate: scraped.rate,
            // Depths are whole numbers, far below what a float holds exactly.
            queued: scraped.last.map(|(_, figures)| figures.queued as u64),
        }
    }

    pub(super) fn summary(&self, fleet: &Fleet, ending: Ending) -> Summary {
        let (latency, undisturbed) = self.tracker.latency();
        let complete = matches!(ending, Ending::Complete);
        Summary {
            ran: self.elapsed(),
            clusters: fleet.names.len(),
            replicas: self.children.replicas().len(),
            shards: self.holdings.len(),
            moves: self.holdings.moves(),
            objects: self.tracker.total(),
            converged: self.tracker.converged(),
            lagging: if complete {
                self.tracker.lagging(LAGGING, self.clock.wall())
            } else {
                Vec::new()
            },
            settled: self.tracker.settled_at().map(|at| at.since(self.started)),
            examples: self.examples.clone(),
            changes: self.tracker.changes(),
            failed_requests: self.failed_requests,
            latency,
            undisturbed,
            complete,
            kill: self.takeover(),
            failure: match ending {
                Ending::Failed(failure) => Some(failure),
                Ending::Complete | Ending::Interrupted => None,
            },
            ..Summary::default()
        }
    }

    /// The replicas that were killed, and what became of their shards.
    fn takeover(&self) -> Option<Kill> {
        let named = |(shard, gap): (String, Option<(Duration, MemberId)>)| {
            (shard, gap.map(|(gap, owner)| (gap, owner.to_string())))
        };
        let killed = |killed: &Killed| {
            format!("{}, {}", self.children.replicas()[killed.index].name(), killed.how)
        };
        let replicas: Vec<_> = self.kills.iter().map(killed).collect();
        (!replicas.is_empty()).then(|| Kill {
            replicas,
            gaps: self.holdings.gaps().into_iter().map(named).collect(),
            restarted: self.kills.iter().all(|killed| killed.restarted),
        })
    }

    /// Reads the journals, after every replica has ended.
    pub(super) fn prove(&self, summary: &mut Summary) {
        let journals = self.children.evidence();
        let first = journals.as_ref().ok().and_then(|evidence| evidence.first_end_us);
        summary.first_reconcile =
            first.and_then(|at| at.checked_sub(micros(self.started))).map(Duration::from_micros);
        summary.journals = Some(journals);
    }
}

/// What a newcomer needs to look around.
pub(super) fn welcome(fleet: &Fleet) -> String {
    let names: Vec<_> = fleet.names.iter().map(ToString::to_string).collect();
    let kubeconfig = fleet.layout.kubeconfig();
    let kubectl = format!("kubectl --kubeconfig {}", kubeconfig.display());
    let mut text = format!(
        "{} replicas of Leasehold share {} clusters ({}); {} objects. Everything runs on this machine.\n\n",
        fleet.args.replicas,
        names.len(),
        names.join(", "),
        fleet.args.objects
    );
    let mut row = |label: &str, value: String| text.push_str(&format!("  {label:<12}{value}\n"));
    row("kubeconfig", format!("{}, a context for each cluster and for home", kubeconfig.display()));
    row("objects", format!("{kubectl} --context {} get tdsets -A", names[0]));
    let further = fleet.args.examples.further();
    if !further.is_empty() {
        let kinds = resources(&further);
        row("examples", format!("{kubectl} --context {} get {kinds} -n default", names[0]));
    }
    row("shards", format!("{kubectl} --context home get shardmaps,members -A"));
    let home = format!("--kubeconfig {} --context home", kubeconfig.display());
    row("fleet", format!("leasehold status {home}"));
    let addresses: Vec<_> = fleet.ports.replicas.iter().map(ToString::to_string).collect();
    row("work", format!("leasehold top {home} --address {}", addresses.join(",")));
    for (index, address) in fleet.ports.replicas.iter().enumerate() {
        row(
            &format!("replica-{index}"),
            format!("http://{address}/ for metrics, probes and debug views"),
        );
    }
    row("logs", format!("{}/replicas/replica-0/log", fleet.args.dir.display()));
    row("stop", "Ctrl-C".to_owned());
    text
}
