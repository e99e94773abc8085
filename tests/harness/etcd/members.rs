//! A cluster of three members, each a process of its own, whose connections with each other can be cut.

use std::time::Duration;

use super::Etcd;
use super::links::PeerLinks;
use crate::wait::wait_for;

const MEMBERS: usize = 3;
/// An election takes a second or two; far more, for a machine that is busy.
const ELECTION_LIMIT: Duration = Duration::from_secs(60);

/// A running cluster.
pub struct EtcdMembers {
    /// Its members.
    pub members: Vec<Etcd>,
    links: PeerLinks,
}

impl EtcdMembers {
    /// Starts three members that know each other.
    ///
    /// # Panics
    /// When one does not start.
    pub fn start() -> EtcdMembers {
        let links = PeerLinks::new(MEMBERS);
        let mut members: Vec<Etcd> = (0..MEMBERS).map(|_| Etcd::prepare()).collect();
        let before = members.iter().enumerate().map(|(at, member)| links.stand_before(at, member.peers.number()));
        let peers: Vec<String> = before.map(|port| format!("http://127.0.0.1:{port}")).collect();
        let all: Vec<String> = peers.iter().enumerate().map(|(at, peer)| format!("m{at}={peer}")).collect();
        for (at, member) in members.iter_mut().enumerate() {
            let words = ["--initial-cluster", &all.join(","), "--initial-advertise-peer-urls", &peers[at]];
            member.options = words.iter().map(|word| (*word).to_owned()).collect();
            member.options.extend(["--name".to_owned(), format!("m{at}")]);
            let slow = ["--heartbeat-interval", "100", "--election-timeout", "1000"];
            member.options.extend(slow.map(str::to_owned));
        }
        let cluster = EtcdMembers { members, links };
        // each waits for a majority
        std::thread::scope(|scope| {
            for at in 0..MEMBERS {
                let cluster = &cluster;
                scope.spawn(move || cluster.launch(at));
            }
        });
        cluster
    }

    fn launch(&self, member: usize) {
        self.members[member].launch_known_as(|pid| self.links.runs_in(member, pid));
    }

    /// The member that leads, as this one knows it.
    fn leader_of(&self, member: usize) -> Option<usize> {
        let number = |at: usize, name: &str| -> Option<u64> {
            let told = self.members[at].try_ctl(&["endpoint", "status", "-w", "fields"]).ok()?;
            let line = told.lines().find(|line| line.starts_with(&format!("\"{name}\" : ")))?;
            line.rsplit(' ').next()?.parse().ok().filter(|number| *number != 0)
        };
        let leader = number(member, "Leader")?;
        (0..MEMBERS).find(|at| number(*at, "MemberID") == Some(leader))
    }

    /// The member that leads, as all but those think.
    ///
    /// # Panics
    /// When there is none for too long.
    pub fn leader_but(&self, without: &[usize]) -> usize {
        wait_for(ELECTION_LIMIT, "a leader", || {
            let others: Vec<usize> = (0..MEMBERS).filter(|at| !without.contains(at)).collect();
            let leader = self.leader_of(*others.first()?)?;
            (others.contains(&leader) && others.iter().all(|at| self.leader_of(*at) == Some(leader))).then_some(leader)
        })
    }

    /// The member that leads.
    ///
    /// # Panics
    /// When there is none for too long.
    pub fn leader(&self) -> usize {
        self.leader_but(&[])
    }

    /// The address of these members, in this order.
    pub fn url(&self, members: &[usize]) -> String {
        let hosts: Vec<String> = members.iter().map(|at| format!("127.0.0.1:{}", self.members[*at].port())).collect();
        format!("etcd://{}/", hosts.join(","))
    }

    /// The members, beginning with this one.
    pub fn all_from(first: usize) -> Vec<usize> {
        (0..MEMBERS).map(|at| (first + at) % MEMBERS).collect()
    }

    /// Kills a member if need be and starts it again with its data. Returns when it has joined the others.
    ///
    /// # Panics
    /// When it does not start.
    pub fn restart(&self, member: usize) {
        self.members[member].kill();
        self.launch(member);
    }

    /// Nothing passes between this member and the others, until [`EtcdMembers::heal`]. Clients reach it.
    pub fn cut_off(&self, member: usize) {
        self.links.cut_off(member);
    }

    /// All members reach each other again.
    pub fn heal(&self) {
        self.links.heal();
    }
}
