//! Subscriptions: one connection per client, shared by its waiters, counted per name.

use onelock::Kind;
use onelock::machine::Key;

use super::bug::Bug;
use super::plan::Fault;
use super::server::Health;
use super::storm;
use super::trace::Fate;
use super::world::{Event, World, nanos, note};

/// What the waiters of one name hear.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heard {
    /// How many waiters share it.
    pub(super) shares: u32,
    pub(super) subscribed: bool,
    /// Grows with every message, subscription and loss of one.
    pub(super) hints: u64,
    /// The last message that told a grant, on the present connection.
    pub(super) told: Option<u32>,
    /// Numbers the SUBSCRIBEs, so that a late confirmation is told from the present one.
    number: u16,
}

/// The subscription connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) id: u32,
    up: bool,
    /// Broken, noticed or not.
    pub(super) dead: bool,
    next_arrival: u64,
}

impl World {
    /// A waiter wants to hear of its name.
    pub(super) fn watch(&mut self, task: usize) {
        let (client, name) = (self.tasks[task].plan.client, self.tasks[task].plan.name);
        let Some(call) = &mut self.tasks[task].call else { return };
        if std::mem::replace(&mut call.watching, true) {
            return;
        }
        let heard = &mut self.clients[client].hearing[name];
        heard.shares += 1;
        call.heard = heard.hints;
        if heard.shares > 1 {
            return;
        }
        match self.clients[client].link {
            Some(link) if link.up => self.ask_to_subscribe(client, name),
            Some(_) => {}
            None => self.make_link(client),
        }
    }

    /// A waiter leaves; with the last one the subscription ends.
    pub(super) fn unwatch(&mut self, client: usize, name: usize) {
        let delay = self.delay();
        let process = &mut self.clients[client];
        let heard = &mut process.hearing[name];
        heard.shares -= 1;
        if heard.shares > 0 {
            return;
        }
        heard.subscribed = false;
        heard.number += 1;
        if let Some(link) = process.link.as_mut().filter(|link| link.up) {
            link.next_arrival = link.next_arrival.max(self.now + delay);
            let (at, id) = (link.next_arrival, link.id);
            self.push(at, Event::Unsubscribe(id, name as u8));
        }
    }

    fn make_link(&mut self, client: usize) {
        let id = self.links.len() as u32;
        self.links.push(client);
        self.clients[client].link = Some(Link { id, up: false, dead: false, next_arrival: 0 });
        let round_trip = self.delay() + self.delay();
        self.push(self.now + round_trip, Event::LinkUp(client as u32, id));
    }

    fn is_current(&self, client: usize, id: u32) -> bool {
        self.clients[client].link.is_some_and(|link| link.id == id)
    }

    pub(super) fn link_up(&mut self, client: usize, id: u32) {
        if !self.is_current(client, id) {
            return;
        }
        if self.server.health == Health::Down || self.clients[client].cut_off_until > self.now {
            // later, if anybody still wants to hear
            self.clients[client].link = None;
            let again = nanos(self.plan.connect_timeout);
            self.push(self.now + again, Event::LinkBroken(client as u32, id));
            return;
        }
        if let Some(link) = &mut self.clients[client].link {
            link.up = true;
        }
        for name in 0..self.names.len() {
            if self.clients[client].hearing[name].shares > 0 {
                self.ask_to_subscribe(client, name);
            }
        }
    }

    fn ask_to_subscribe(&mut self, client: usize, name: usize) {
        let delay = self.delay();
        let process = &mut self.clients[client];
        let Some(link) = &mut process.link else { return };
        let heard = &mut process.hearing[name];
        heard.number += 1;
        link.next_arrival = link.next_arrival.max(self.now + delay);
        let (at, id, number) = (link.next_arrival, link.id, heard.number);
        self.push(at, Event::Subscribe(id, name as u8, number));
    }

    pub(super) fn subscribe_at_server(&mut self, id: u32, name: usize, number: u16) {
        let client = self.links[id as usize];
        if !self.is_current(client, id) || self.clients[client].link.is_some_and(|link| link.dead) {
            return;
        }
        match self.server.health {
            Health::Down => {}
            Health::Frozen => self.server.link_backlog.push(Event::Subscribe(id, name as u8, number)),
            Health::Up => {
                self.server.subscribers.insert((client, id, name));
                let delay = self.delay();
                self.push(self.now + delay, Event::Subscribed(id, name as u8, number));
            }
        }
    }

    pub(super) fn unsubscribe_at_server(&mut self, id: u32, name: usize) {
        if self.server.health == Health::Frozen {
            self.server.link_backlog.push(Event::Unsubscribe(id, name as u8));
            return;
        }
        let client = self.links[id as usize];
        self.server.subscribers.remove(&(client, id, name));
    }

    pub(super) fn subscribed(&mut self, id: u32, name: usize, number: u16) {
        let client = self.links[id as usize];
        let heard = &mut self.clients[client].hearing[name];
        if heard.number != number || heard.shares == 0 {
            return;
        }
        if !self.is_current(client, id) {
            return;
        }
        let heard = &mut self.clients[client].hearing[name];
        (heard.subscribed, heard.told) = (true, None);
        heard.hints += 1;
        note!(self, "client {client}: hears of name {name}");
        self.wake_head(client, name);
    }

    /// Tells the subscribers, as far as messages get through.
    pub(super) fn publish(&mut self, kind: Kind, key: &Key) {
        let Some(name) = self.names.iter().position(|name| name.key == *key && name.kind == kind) else { return };
        self.check_publication(name);
        for (client, id, of) in self.server.subscribers.clone() {
            if of != name {
                continue;
            }
            if self.strikes(Fault::MessageLoss) {
                self.mark_published(id, name, None);
                self.mark_notice(id, name, None, Fate::Lost);
                continue;
            }
            self.mark_published(id, name, None);
            let delay = self.delay();
            let _ = client;
            self.push(self.now + delay, Event::Message(id, name as u8, None));
        }
    }

    pub(super) fn message(&mut self, id: u32, name: usize, told: Option<u32>) {
        let client = self.links[id as usize];
        let heard = self.is_current(client, id) && !self.clients[client].link.is_some_and(|link| link.dead);
        self.mark_notice(id, name, told, if heard { Fate::Arrived } else { Fate::Lost });
        if !heard || self.clients[client].hearing[name].shares == 0 {
            return;
        }
        let heard = &mut self.clients[client].hearing[name];
        heard.hints += 1;
        heard.told = told.or(heard.told);
        self.wake_head(client, name);
    }

    /// The subscription connection breaks; the client notices at once or much later.
    pub(super) fn break_link(&mut self, client: usize, notice: u64) {
        let Some(link) = &mut self.clients[client].link else { return };
        link.dead = true;
        let id = link.id;
        self.server.subscribers.retain(|(_, other, _)| *other != id);
        self.push(self.now + notice, Event::LinkBroken(client as u32, id));
    }

    /// The client notices that its subscription connection is gone, or tries again to make one.
    pub(super) fn link_broken(&mut self, client: usize, id: u32) {
        if self.clients[client].link.is_some() && !self.is_current(client, id) {
            return;
        }
        self.clients[client].link = None;
        self.links_changed_at = self.now;
        let wanted = self.clients[client].hearing.iter().any(|heard| heard.shares > 0);
        if wanted && self.bug != Some(Bug::NoResubscribe) {
            self.make_link(client);
        }
        for name in 0..self.names.len() {
            let heard = &mut self.clients[client].hearing[name];
            if heard.shares > 0 && std::mem::take(&mut heard.subscribed) {
                heard.hints += 1;
                self.wake_head(client, name);
            }
        }
    }

    /// The head of the line looks again.
    fn wake_head(&mut self, client: usize, name: usize) {
        use super::task::Stage;
        let Some(task) = self.clients[client].lines[name].waiters().next().copied() else { return };
        match self.tasks[task].stage {
            Stage::Watching if self.clients[client].hearing[name].subscribed => {
                self.watch_confirmed(task);
                self.step(task);
            }
            Stage::Sleeping => {
                let hints = self.clients[client].hearing[name].hints;
                let now = self.local(client);
                if let Some(call) = &mut self.tasks[task].call {
                    call.heard = hints;
                }
                if self.is_told(task) {
                    return;
                }
                if let Some(call) = &mut self.tasks[task].call {
                    storm::hint(self.bug, &mut call.machine, now, &mut self.clients[client].jitter);
                }
                self.step(task);
            }
            _ => {}
        }
    }
}
