//! The model, as the checker explores it: which actions each state allows, and what must hold.

use stateright::{Model, Property};

use crate::oracle::{Milestone, Rule};
use crate::planted::{Bug, Wrapper};
use crate::process::{KINDS, Watch};
use crate::system::{Action, Beginning, Edit, MEMBERS, Slot, State};

/// A fleet.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    pub beginning: Beginning,
    /// The most disturbances: starts, departures, crashes, restarts, pauses, edits, stalled watches, late lists,
    /// configurations, loads, delayed writes, delayed answers.
    pub disturbances: u8,
    /// A bug around each member.
    pub bug: Option<Bug>,
}

impl Fleet {
    /// A fleet without bugs.
    pub fn new(beginning: Beginning, disturbances: u8) -> Self {
        Self { beginning, disturbances, bug: None }
    }
}

impl Model for Fleet {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.beginning, self.disturbances, Wrapper(self.bug))]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        if !state.prompt.is_empty() {
            actions.extend([Action::Pass, Action::Delay, Action::LoseAnswer]);
            return;
        }
        if state.round.is_empty() {
            between_ticks(state, actions);
        } else {
            actions.push(Action::Proceed);
        }
        held(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        next.apply(action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("S1", |_, state: &State| state.broken != Some(Rule::S1)),
            Property::always("S2", |_, state: &State| state.broken != Some(Rule::S2)),
            Property::always("S3", |_, state: &State| state.broken != Some(Rule::S3)),
            Property::always("S4", |_, state: &State| state.broken != Some(Rule::S4)),
            Property::always("S5", |_, state: &State| state.broken != Some(Rule::S5)),
            Property::sometimes("a live handover completes", |_, state: &State| {
                state.reached == Some(Milestone::Handover)
            }),
            Property::sometimes("a crash takeover completes", |_, state: &State| {
                state.reached == Some(Milestone::Takeover)
            }),
            Property::sometimes(
                "a crash takeover completes before any silence",
                |_, state: &State| state.reached == Some(Milestone::Proof),
            ),
            Property::sometimes("a shard is split", |_, state: &State| {
                state.reached == Some(Milestone::Split)
            }),
            Property::sometimes("a map goes into the next version", |_, state: &State| {
                state.reached == Some(Milestone::NextVersion)
            }),
            Property::sometimes("a map is removed", |_, state: &State| {
                state.reached == Some(Milestone::Removal)
            }),
            Property::sometimes("home is read again after a late list", |_, state: &State| {
                state.reached == Some(Milestone::ReadAgain)
            }),
            Property::sometimes("two coordinators overlap", |_, state: &State| {
                state.reached == Some(Milestone::Overlap)
            }),
            Property::sometimes("a member fences itself and joins anew", |_, state: &State| {
                state.processes().any(|process| *process.node.id() != process.born)
            }),
        ]
    }
}

/// The actions between the ticks of all clocks.
fn between_ticks(state: &State, actions: &mut Vec<Action>) {
    actions.extend([Action::Tick, Action::TickBackwards]);
    for member in 0..MEMBERS {
        let Some(process) = state.slots[member].process() else { continue };
        if process.pause.is_some() {
            actions.push(Action::Resume(member));
        } else if state.disturbances > 0 {
            actions.extend([Action::Crash(member), Action::Pause(member), Action::Leave(member)]);
            actions.extend([Edit::Holder, Edit::Duration].map(|edit| Action::Edit(member, edit)));
            actions.push(Action::Kill(member));
            actions.extend([true, false].map(|told| Action::Restart(member, told)));
            let live =
                KINDS.into_iter().filter(|kind| matches!(process.watches[kind], Watch::Live));
            actions.extend(live.clone().map(|kind| Action::Stall(member, kind)));
            let late = live.filter(|kind| state.store.last.contains_key(kind));
            actions.extend(late.map(|kind| Action::ListLate(member, kind)));
            actions.extend([Action::Configure(member), Action::Load(member)]);
        }
    }
    if state.disturbances > 0 && state.slots.iter().any(|slot| matches!(slot, Slot::Empty)) {
        actions.push(Action::Start);
    }
}

/// The actions that wait and may happen at any time, also between the ticks of two members.
fn held(state: &State, actions: &mut Vec<Action>) {
    for (member, slot) in state.slots.iter().enumerate() {
        let Some(process) = slot.process().filter(|process| process.pause.is_none()) else {
            continue;
        };
        actions.extend(process.draining().map(|shard| Action::Finish(member, shard)));
        for (kind, watch) in &process.watches {
            if matches!(watch, Watch::Stalled(_, queue) if !queue.is_empty()) {
                actions.push(Action::Deliver(member, *kind));
            }
        }
    }
    actions.extend((0..state.delayed.len()).map(Action::Land));
    actions.extend((0..state.answers.len()).map(Action::Answer));
}
