//! What must be true of the world of the model. Nothing here asks the plan.

use super::server::{Entry, Server};
use super::world::World;
use crate::role::Role;

/// What is true at each moment.
pub(super) fn always(world: &World) -> Result<(), String> {
    let mut able = (0..world.servers.len()).filter(|server| can_acknowledge(world, *server));
    let Some(first) = able.next() else { return Ok(()) };
    if let Some(second) = able.next() {
        return Err(format!("db-{first} and db-{second} can both acknowledge commits"));
    }
    let missing = world.acknowledged.iter().find(|id| !world.servers[first].has(**id));
    match missing {
        Some(id) => Err(format!("db-{first} takes writes without commit {id}")),
        None => Ok(()),
    }
}

/// Whether a server could acknowledge a new commit to a client.
fn can_acknowledge(world: &World, place: usize) -> bool {
    let server = &world.servers[place];
    let replicas = world.servers.iter().filter(|other| {
        let source = other.source.filter(|source| source.server == place && source.receives);
        let acks = |source: super::server::Source| {
            source.link.map_or(other.acknowledges, |(_, acks)| acks)
        };
        other.is_up && source.is_some_and(acks)
    });
    server.is_up && server.is_open && replicas.count() >= server.waits_for as usize
}

/// What is true when nothing is left to do.
pub(super) fn settled(world: &World) -> Result<(), String> {
    let (memory, wanted) = (world.memory(), &world.wanted);
    let Some(name) = &memory.primary else { return Err("nobody is primary".to_owned()) };
    let primary = &world.servers[world.place(name)];
    if !primary.is_up || !primary.is_open || primary.waiting() > 0 {
        return Err(format!("{name} does not take writes"));
    }
    if let Some(id) = world.acknowledged.iter().find(|id| !primary.has(**id)) {
        return Err(format!("commit {id} was acknowledged and is lost"));
    }
    if memory.acks != wanted.acks || primary.waits_for != wanted.acks {
        return Err(format!("{} acknowledgements are waited for", primary.waits_for));
    }
    for (place, server) in world.servers.iter().enumerate().take(wanted.instances) {
        let is_member = memory
            .members
            .iter()
            .any(|member| member.name == server.name && world.is_alive(&member.name, &member.uuid));
        let role = if server.name == *name { Role::Primary } else { Role::Replica };
        let pod = world.pods[place].as_ref();
        if !is_member || world.count != wanted.instances {
            return Err(format!("{} is no member", server.name));
        }
        if ids(server) != ids(primary) {
            return Err(format!("{} has other data than {name}", server.name));
        }
        if pod.is_none_or(|pod| pod.role != Some(role) || pod.template != wanted.template) {
            return Err(format!("the Pod of {} is not as it should be", server.name));
        }
    }
    match memory.members.len() == wanted.instances {
        true => Ok(()),
        false => Err("too many members".to_owned()),
    }
}

/// Whether no proof can be had of what was committed: the primary's data is gone, and so many others'
/// that they may have had commits that nobody else has; or what is left contradicts itself.
pub(super) fn must_block(world: &World) -> bool {
    let memory = world.memory();
    let last = memory.primary.as_ref().or(memory.former.as_ref());
    let is_alive = |name: &String| {
        let member = memory.members.iter().find(|member| member.name == *name);
        member.is_some_and(|member| world.is_alive(name, &member.uuid))
    };
    if last.is_none_or(is_alive) {
        return false;
    }
    let others = memory.members.iter().filter(|member| Some(&member.name) != last);
    let (left, gone): (Vec<_>, Vec<_>) =
        others.map(|member| &member.name).partition(|name| is_alive(name));
    let left: Vec<_> = left.iter().map(|name| &world.servers[world.place(name)]).collect();
    let has_all = |heir: &&&Server| left.iter().all(|other| contains(heir, other));
    gone.len() >= memory.acks as usize || left.iter().find(has_all).is_none()
}

fn all(server: &Server) -> impl Iterator<Item = &Entry> {
    server.log.iter().chain(&server.relay)
}

fn contains(heir: &Server, other: &Server) -> bool {
    all(other).all(|entry| all(heir).any(|known| known == entry))
}

fn ids(server: &Server) -> Vec<u32> {
    let mut ids: Vec<_> = server.log.iter().map(|entry| entry.id).collect();
    ids.sort_unstable();
    ids
}
