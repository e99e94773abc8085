//! The blocking API: every request has a thread of its own, and a cancelled one is interrupted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use onelock::blocking::{Cancel, Client, Lease, MultiLock};
use onelock_tests::clock::boot_ns;
use serde_json::{Value, json};

use crate::protocol::{
    Args, Body, Failure, Named, Request, builder, described, diagnosis, entries, hello, inspection, ms, page, permits,
    reply, told, view, with_lock,
};

#[derive(Default)]
struct Driver {
    clients: Named<Client>,
    leases: Named<Lease>,
    pending: Mutex<HashMap<u64, Cancel>>,
}

pub(crate) fn run(requests: impl Iterator<Item = Request>) {
    let driver = Arc::new(Driver::default());
    for Request { id, op, args } in requests {
        let cancel = Cancel::new();
        driver.pending.lock().unwrap().insert(id, cancel.clone());
        let driver = driver.clone();
        std::thread::spawn(move || {
            let from_ns = boot_ns();
            let result = driver.act(&op, &args, cancel);
            driver.pending.lock().unwrap().remove(&id);
            reply(id, from_ns, result);
        });
    }
}

impl Driver {
    fn act(&self, op: &str, args: &Args, cancel: Cancel) -> Result<Value, Failure> {
        match op {
            "hello" => return Ok(hello("blocking")),
            "client" => {
                let client = builder(args).connect_blocking(&args.url)?;
                self.clients.put(&args.client, client);
            }
            "close" => self.clients.get(&args.client)?.close(),
            "stats" => {
                let stats = self.clients.get(&args.client)?.stats();
                return Ok(
                    json!({"held": stats.held, "waiting": stats.waiting, "cleaning": stats.cleaning, "lost": stats.lost}),
                );
            }
            "acquire" => {
                let client = self.clients.get(&args.client)?;
                let lease = with_lock!(MultiLock, client, args, lock => match args.wait_ms {
                    Some(wait) => lock.interrupt(cancel).acquire_within(ms(wait))?,
                    None => lock.interrupt(cancel).acquire()?,
                });
                return Ok(view!(self.leases.put(&args.lease, lease)));
            }
            "try_acquire" => {
                let client = self.clients.get(&args.client)?;
                let found = with_lock!(MultiLock, client, args, lock => lock.try_acquire()?);
                return Ok(found.map_or(Value::Null, |lease| view!(self.leases.put(&args.lease, lease))));
            }
            "attach" => {
                let lock = described!(self.clients.get(&args.client)?, args, args.name);
                let lease = told!(lock, args).attach(&args.proof)?;
                return Ok(view!(self.leases.put(&args.lease, lease)));
            }
            "with" => return with(&*self.clients.get(&args.client)?, args),
            "is_locked" => {
                let client = self.clients.get(&args.client)?;
                return Ok(json!(with_lock!(MultiLock, client, args, lock => lock.is_locked()?)));
            }
            "list" => {
                let client = self.clients.get(&args.client)?;
                if let Some(limit) = args.limit {
                    return Ok(page(client.list(args.pattern.bytes(), limit, args.cursor.as_deref())?));
                }
                return Ok(entries(client.listing(args.pattern.bytes()).collect::<Result<_, _>>()?));
            }
            "inspect" => return Ok(inspection(self.clients.get(&args.client)?.inspect(args.name.bytes())?)),
            "diagnose" => return Ok(diagnosis(&self.clients.get(&args.client)?.diagnose(args.name.bytes())?)),
            "force_release" => {
                let client = self.clients.get(&args.client)?;
                return Ok(json!(if args.foreign {
                    client.force_release_foreign(args.name.bytes())?
                } else {
                    client.force_release(args.name.bytes())?
                }));
            }
            "permits" => {
                let found = described!(self.clients.get(&args.client)?, args, args.name).permits()?;
                return Ok(found.map_or(Value::Null, permits));
            }
            "set_permits" => {
                let lock = described!(self.clients.get(&args.client)?, args, args.name);
                return Ok(permits(lock.set_permits(args.permits.unwrap_or_default())?));
            }
            "cancel" => {
                if let Some(pending) = self.pending.lock().unwrap().get(&args.request) {
                    pending.cancel();
                }
            }
            "check" => return Ok(view!(self.leases.get(&args.lease)?)),
            "release" => return Ok(json!(self.leases.get(&args.lease)?.release()?.as_str())),
            "extend" => {
                let lease = self.leases.get(&args.lease)?;
                lease.extend(ms(args.ttl_ms.unwrap_or_default()))?;
                return Ok(view!(lease));
            }
            "downgrade" => {
                let lease = self.leases.get(&args.lease)?;
                lease.downgrade()?;
                return Ok(view!(lease));
            }
            "detach" => return Ok(json!(self.leases.get(&args.lease)?.detach()?)),
            "wait_lost" => {
                let reason = self.leases.get(&args.lease)?.wait_lost(ms(args.limit_ms))?;
                return Ok(json!(reason.map(onelock::LossReason::as_str)));
            }
            "drop" => self.leases.remove(&args.lease),
            other => return Err(Failure::Driver(format!("there is no operation {other}"))),
        }
        Ok(Value::Null)
    }
}

fn with(client: &Client, args: &Args) -> Result<Value, Failure> {
    let body = |lease: &Lease| {
        let seen = view!(lease);
        match args.body {
            Body::Return => Ok(seen),
            Body::Fail => Err(Failure::Body),
            Body::UntilFree => {
                while with_lock!(MultiLock, client, args, lock => lock.is_locked()?) {
                    std::thread::sleep(ms(10));
                }
                Ok(seen)
            }
            Body::UntilLost => {
                while lease.wait_lost(ms(1000))?.is_none() {}
                Ok(seen)
            }
        }
    };
    with_lock!(MultiLock, client, args, lock => lock.with(body))
}
