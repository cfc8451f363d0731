//! The network between processes and clusters, and its faults.
//!
//! ```text
//!   process ─▶ outbox ─▶ send: fate ─▶ server ─▶ arrivals ─▶ collect: delay ─▶ inbox ─▶ process
//! ```
//!
//! Nothing that is sent in a slice of time reaches a process in the same slice, so processes can
//! run one after the other. Pieces of one watch never overtake each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Request;
use tokio::runtime::Handle;

use super::history::{self, Agent, Event, History, ProcessId};
use super::link::{Broken, Outgoing};
use super::plan::{Fault, Kind, RequestFault, SECOND_US};
use super::server::{AnswerFate, Arrival, Arrivals, Call, Payload, SimServer};

/// How long at most a lost request hangs before its connection breaks.
const LONGEST_HANG_US: u64 = 4 * SECOND_US;
/// How late at most a slow request or answer is.
const LONGEST_DELAY_US: u64 = 3 * SECOND_US;

/// The network. Owned by the world.
#[derive(Debug)]
pub struct Network {
    seed: u64,
    history: History,
    arrivals: Arrivals,
    servers: Vec<Arc<SimServer>>,
    /// The faults of this moment.
    faults: Vec<Fault>,
    /// The replica of each process.
    replicas: Vec<usize>,
    /// How many requests each process has sent to each cluster.
    sent: BTreeMap<(ProcessId, usize), u64>,
    /// What is sent back for each request.
    flows: BTreeMap<u64, Flow>,
    inboxes: BTreeMap<ProcessId, BTreeMap<(u64, u64), Delivery>>,
    requests: u64,
    order: u64,
}

#[derive(Debug)]
struct Flow {
    rng: fastrand::Rng,
    /// When the last piece arrives.
    last_us: u64,
}

#[derive(Debug)]
struct Delivery {
    id: u64,
    load: Payload,
}

impl Network {
    /// A network to these servers, without processes.
    pub fn new(
        seed: u64,
        history: History,
        arrivals: Arrivals,
        servers: Vec<Arc<SimServer>>,
    ) -> Self {
        Self {
            seed,
            history,
            arrivals,
            servers,
            faults: Vec::new(),
            replicas: Vec::new(),
            sent: BTreeMap::new(),
            flows: BTreeMap::new(),
            inboxes: BTreeMap::new(),
            requests: 0,
            order: 0,
        }
    }

    /// Adds a process of this replica.
    pub fn connect(&mut self, replica: usize) -> ProcessId {
        self.replicas.push(replica);
        self.replicas.len() - 1
    }

    /// Replaces the faults.
    pub fn set_faults(&mut self, faults: Vec<Fault>) {
        self.faults = faults;
    }

    /// Sends a request of a process.
    pub fn send(&mut self, outgoing: Outgoing, world: &Handle) {
        let Outgoing { at_us, leaves_us, process, cluster, request, reply } = outgoing;
        let count = self.sent.entry((process, cluster)).or_default();
        *count += 1;
        let mut rng =
            fastrand::Rng::with_seed(mixed(&[self.seed, process as u64, cluster as u64, *count]));
        self.requests += 1;
        let sent = described(self.requests, cluster, &request);
        self.history.add(at_us, Event::Sent(process, sent.clone()));
        let mut call = Call {
            process,
            sent,
            sent_us: at_us,
            arrives_us: leaves_us + rng.u64(0..10_000),
            request,
            fate: AnswerFate::Sent,
            reply: Some(reply),
        };
        let server = Arc::clone(&self.servers[cluster]);
        let passes = self.pass(&mut call, &server, &mut rng, world);
        self.flows.insert(call.sent.id, Flow { rng, last_us: 0 });
        match passes {
            Ok(()) => drop(world.spawn(server.serve(call))),
            Err(at_us) => {
                if let Some(reply) = call.reply {
                    let load = Payload::Answer(reply, Err(Broken));
                    let id = call.sent.id;
                    self.deliver_at(at_us, Arrival { at_us, process, cluster, id, load });
                }
            }
        }
    }

    /// Applies the faults to a request. An error means that it is lost, and says when the process
    /// notices.
    fn pass(
        &self,
        call: &mut Call,
        server: &Arc<SimServer>,
        rng: &mut fastrand::Rng,
        world: &Handle,
    ) -> Result<(), u64> {
        let (replica, at) = (self.replicas[call.process], call.sent.cluster);
        for fault in &self.faults {
            match fault.kind {
                Kind::Cut { replica: cut, cluster, out: true, reset, .. }
                    if (cut, cluster) == (replica, at) =>
                {
                    if reset {
                        return Err(fault.until_us);
                    }
                    call.arrives_us = fault.until_us + rng.u64(0..100_000);
                }
                Kind::Requests { cluster, percent, how }
                    if cluster == at && rng.u32(0..100) < percent =>
                {
                    apply(how, call, server, rng, world)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Collects what the servers sent back in the slice that ends now.
    pub fn collect(&mut self, now_us: u64) {
        let mut arrivals = self.arrivals.take();
        arrivals.sort_by_key(|arrival| (arrival.at_us, arrival.id));
        for arrival in arrivals {
            let due = self.due(&arrival, now_us);
            match due {
                Ok(due) => self.deliver_at(due, arrival),
                Err(due) => self.deliver_at(due, broken(arrival)),
            }
        }
    }

    /// When something that was sent back arrives. An error means that it is lost, and says when the
    /// process notices.
    fn due(&mut self, arrival: &Arrival, now_us: u64) -> Result<u64, u64> {
        let replica = self.replicas[arrival.process];
        let Some(flow) = self.flows.get_mut(&arrival.id) else { return Ok(now_us) };
        let piece = !matches!(arrival.load, Payload::Answer(..));
        let mut due = now_us;
        let mut lost = false;
        for fault in &self.faults {
            match fault.kind {
                Kind::Cut { replica: cut, cluster, back: true, reset, .. }
                    if (cut, cluster) == (replica, arrival.cluster) =>
                {
                    (due, lost) = (due.max(fault.until_us), lost || reset);
                }
                Kind::Freeze { replica: frozen, cluster, gap }
                    if piece && (frozen, cluster) == (replica, arrival.cluster) =>
                {
                    (due, lost) = (due.max(fault.until_us), lost || gap);
                }
                Kind::Requests { cluster, percent, how: RequestFault::Slow }
                    if cluster == arrival.cluster && flow.rng.u32(0..100) < percent =>
                {
                    due += flow.rng.u64(0..LONGEST_DELAY_US);
                }
                _ => {}
            }
        }
        due = due.max(flow.last_us);
        flow.last_us = due;
        if lost { Err(due) } else { Ok(due) }
    }

    fn deliver_at(&mut self, due_us: u64, arrival: Arrival) {
        self.order += 1;
        let delivery = Delivery { id: arrival.id, load: arrival.load };
        let inbox = self.inboxes.entry(arrival.process).or_default();
        inbox.insert((due_us, self.order), delivery);
    }

    /// Delivers to a process what has arrived by now.
    pub fn deliver(&mut self, process: ProcessId, now_us: u64) {
        let Some(inbox) = self.inboxes.get_mut(&process) else { return };
        while let Some(first) = inbox.first_entry()
            && first.key().0 <= now_us
        {
            let Delivery { id, load } = first.remove();
            // An error means that nobody waits for it any more.
            match load {
                Payload::Answer(reply, answer) => {
                    let status = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
                    self.history.add(now_us, Event::Answered(process, id, status));
                    let _ = reply.send(answer);
                }
                Payload::Piece(pieces, piece) => drop(pieces.unbounded_send(piece)),
                Payload::End(pieces) => drop(pieces),
            }
        }
    }

    /// A process has ended. Drops whatever was on its way to it.
    pub fn forget(&mut self, process: ProcessId) {
        self.inboxes.remove(&process);
    }
}

/// Applies a fault to a request.
fn apply(
    how: RequestFault,
    call: &mut Call,
    server: &Arc<SimServer>,
    rng: &mut fastrand::Rng,
    world: &Handle,
) -> Result<(), u64> {
    let hang = call.arrives_us + rng.u64(0..LONGEST_HANG_US);
    let watch = call.sent.path.contains("watch=true");
    match how {
        RequestFault::Lost => return Err(hang),
        RequestFault::AnswerLost if !watch => call.fate = AnswerFate::Lost { at_us: hang },
        RequestFault::Refused(status) => call.fate = AnswerFate::Refused(status),
        RequestFault::Slow => call.arrives_us += rng.u64(0..LONGEST_DELAY_US),
        RequestFault::Stale => look_back(call, server, rng),
        RequestFault::Repeated if !watch => {
            drop(world.spawn(Arc::clone(server).serve(again(call, rng))));
        }
        RequestFault::AnswerLost | RequestFault::Repeated => {}
    }
    Ok(())
}

/// The error of a broken connection in place of an arrival.
fn broken(arrival: Arrival) -> Arrival {
    let load = match arrival.load {
        Payload::Answer(reply, _) => Payload::Answer(reply, Err(Broken)),
        Payload::Piece(pieces, _) | Payload::End(pieces) => Payload::Piece(pieces, Err(Broken)),
    };
    Arrival { load, ..arrival }
}

/// The second arrival of a request.
fn again(call: &Call, rng: &mut fastrand::Rng) -> Call {
    Call {
        process: call.process,
        sent: call.sent.clone(),
        sent_us: call.sent_us,
        arrives_us: call.arrives_us + rng.u64(0..SECOND_US),
        request: call.request.clone(),
        fate: AnswerFate::Sent,
        reply: None,
    }
}

/// Makes a list show the state some writes ago, and refuses to stream one, as old servers do.
fn look_back(call: &mut Call, server: &SimServer, rng: &mut fastrand::Rng) {
    let path = call.sent.path.as_str();
    if path.contains("sendInitialEvents=true") {
        call.fate = AnswerFate::Refused(422);
        return;
    }
    let collection = call.request.method() == http::Method::GET && path.contains("limit=");
    if !collection || path.contains("continue=") || path.contains("resourceVersion=") {
        return;
    }
    let revision = server.api.revision().saturating_sub(rng.u64(0..20)).max(1);
    let stale = format!("{path}&resourceVersion={revision}&resourceVersionMatch=Exact");
    if let Ok(uri) = stale.parse() {
        *call.request.uri_mut() = uri;
    }
}

fn described(id: u64, cluster: usize, request: &Request<bytes::Bytes>) -> history::Request {
    let agent = request.headers().get(http::header::USER_AGENT);
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    history::Request {
        id,
        cluster,
        method: request.method().clone(),
        path,
        agent: Agent::read(agent.and_then(|agent| agent.to_str().ok()).unwrap_or_default()),
    }
}

/// One seed from several numbers.
pub fn mixed(parts: &[u64]) -> u64 {
    parts.iter().fold(0x9e37_79b9_7f4a_7c15, |state, part| {
        fastrand::Rng::with_seed(state ^ part.wrapping_mul(0xff51_afd7_ed55_8ccd)).u64(..)
    })
}
