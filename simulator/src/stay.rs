//! The shortest time for which a name stays taken, however early its holder releases it.

use onelock::machine::Time;

use super::world::World;

impl World {
    /// A deed becomes a hold at `now` of its process.
    pub(super) fn begin_stay(&mut self, deed: usize, now: Time) {
        let terms = self.deeds[deed].terms.clone();
        self.deeds[deed].stays_until = terms.stays_until(now);
        let granted_us = self.server.clock.micros(self.deeds[deed].granted_at);
        let until_us = granted_us + u64::try_from(terms.min_hold.as_micros()).unwrap_or(u64::MAX);
        self.names[self.deeds[deed].name].stay = Some((deed, until_us));
    }

    /// The server gives a name to another deed: the shortest time of the one before has to be over.
    pub(super) fn check_stay(&mut self, name: usize, deed: usize) {
        let Some((before, until_us)) = self.names[name].stay else { return };
        if before == deed || self.deeds[before].tainted || self.loose || self.clock_was_set {
            return;
        }
        // keys end with a millisecond of the server's clock
        if self.server.clock.micros(self.now) / 1000 < until_us / 1000 {
            self.violate(
                "P2 min_hold",
                format!("deed {deed} is granted before the shortest time of deed {before} is over"),
            );
        }
    }
}
