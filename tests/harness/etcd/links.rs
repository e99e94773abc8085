//! The connections between the members of a cluster, which can be cut.

use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

/// A connection from one member to another.
struct Link {
    members: [usize; 2],
    ends: [TcpStream; 2],
}

#[derive(Default)]
struct LinkState {
    /// The number of each member's process; 0 when it is not running.
    pids: Vec<u32>,
    cut_off: HashSet<usize>,
    open: Vec<Link>,
}

/// What stands in front of each member's port for the others.
#[derive(Clone, Default)]
pub(super) struct PeerLinks(Arc<Mutex<LinkState>>);

impl PeerLinks {
    pub(super) fn new(members: usize) -> PeerLinks {
        let links = PeerLinks::default();
        links.state().pids = vec![0; members];
        links
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.0.lock().unwrap()
    }

    /// Listens for the others in front of this member, whose own port this is. Returns the port that it listens on.
    pub(super) fn stand_before(&self, member: usize, port: u16) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let own = listener.local_addr().expect("it listens").port();
        let links = self.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
                // what was refused is closed here
                let _ = links.carry(member, &client, &server);
            }
        });
        own
    }

    fn carry(&self, member: usize, client: &TcpStream, server: &TcpStream) -> io::Result<()> {
        let mut state = self.state();
        let inode = inode_of(client.peer_addr()?.port());
        let caller = state.pids.iter().position(|pid| inode.as_ref().is_some_and(|inode| has_socket(*pid, inode)));
        let Some(caller) = caller.filter(|caller| ![*caller, member].iter().any(|it| state.cut_off.contains(it)))
        else {
            return Ok(());
        };
        for (from, to) in [(client, server), (server, client)] {
            let _ = from.set_nodelay(true);
            let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
            std::thread::spawn(move || {
                let _ = io::copy(&mut from, &mut to);
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            });
        }
        state.open.push(Link { members: [caller, member], ends: [client.try_clone()?, server.try_clone()?] });
        Ok(())
    }

    /// The member runs in this process.
    pub(super) fn runs_in(&self, member: usize, pid: u32) {
        self.state().pids[member] = pid;
    }

    /// Nothing passes between this member and the others, until [`PeerLinks::heal`].
    pub(super) fn cut_off(&self, member: usize) {
        let mut state = self.state();
        state.cut_off.insert(member);
        state.open.retain(|link| {
            let is_cut = link.members.contains(&member);
            if is_cut {
                link.ends.iter().for_each(|end| drop(end.shutdown(Shutdown::Both)));
            }
            !is_cut
        });
    }

    pub(super) fn heal(&self) {
        self.state().cut_off.clear();
    }
}

/// The kernel's number of the socket at this port of the loopback interface that somebody connected with.
fn inode_of(port: u16) -> Option<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    let local = format!("0100007F:{port:04X}");
    let line = table.lines().find(|line| line.split_whitespace().nth(1) == Some(&local))?;
    line.split_whitespace().nth(9).map(str::to_owned)
}

/// Whether this process has that socket.
fn has_socket(pid: u32, inode: &str) -> bool {
    let wanted = format!("socket:[{inode}]");
    let files = std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")).into_iter().flatten();
    files
        .flatten()
        .any(|file| std::fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == wanted.as_str()))
}
