//! The asynchronous API: every request is a task, and a cancelled one is a dropped future.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use onelock::{Client, Lease, MultiLock};
use onelock_tests::clock::boot_ns;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

use crate::protocol::{
    Args, Body, Failure, Named, Request, builder, described, diagnosis, entries, hello, inspection, ms, page, permits,
    reply, told, view, with_lock,
};

#[derive(Default)]
struct Driver {
    clients: Named<Client>,
    leases: Named<Lease>,
    pending: Mutex<HashMap<u64, AbortHandle>>,
}

pub(crate) fn run(requests: impl Iterator<Item = Request>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let driver = Arc::new(Driver::default());
    for Request { id, op, args } in requests {
        let from_ns = boot_ns();
        let own = driver.clone();
        let task = runtime.spawn(async move { own.act(&op, args).await });
        driver.pending.lock().unwrap().insert(id, task.abort_handle());
        let own = driver.clone();
        runtime.spawn(async move {
            let result = task.await;
            own.pending.lock().unwrap().remove(&id);
            match result {
                Ok(result) => reply(id, from_ns, result),
                Err(error) if error.is_cancelled() => {
                    crate::protocol::reply_error(id, "Cancelled", "the future was dropped");
                }
                Err(error) => reply(id, from_ns, Err(Failure::Driver(error.to_string()))),
            }
        });
    }
}

impl Driver {
    async fn act(&self, op: &str, args: Args) -> Result<Value, Failure> {
        match op {
            "hello" => return Ok(hello("async")),
            "client" => {
                let client = builder(&args).connect(&args.url).await?;
                self.clients.put(&args.client, client);
            }
            "close" => self.clients.get(&args.client)?.close().await,
            "stats" => {
                let stats = self.clients.get(&args.client)?.stats();
                return Ok(
                    json!({"held": stats.held, "waiting": stats.waiting, "cleaning": stats.cleaning, "lost": stats.lost}),
                );
            }
            "acquire" => {
                let lease = with_lock!(MultiLock, self.clients.get(&args.client)?, args, lock => match args.wait_ms {
                    Some(wait) => lock.acquire_within(ms(wait)).await?,
                    None => lock.acquire().await?,
                });
                return Ok(view!(self.leases.put(&args.lease, lease)));
            }
            "try_acquire" => {
                let client = self.clients.get(&args.client)?;
                let found = with_lock!(MultiLock, client, args, lock => lock.try_acquire().await?);
                return Ok(found.map_or(Value::Null, |lease| view!(self.leases.put(&args.lease, lease))));
            }
            "attach" => {
                let lock = described!(self.clients.get(&args.client)?, args, args.name);
                let lease = told!(lock, args).attach(&args.proof).await?;
                return Ok(view!(self.leases.put(&args.lease, lease)));
            }
            "with" => return with(&*self.clients.get(&args.client)?, args).await,
            "is_locked" => {
                let client = self.clients.get(&args.client)?;
                return Ok(json!(with_lock!(MultiLock, client, args, lock => lock.is_locked().await?)));
            }
            "list" => {
                let client = self.clients.get(&args.client)?;
                if let Some(limit) = args.limit {
                    return Ok(page(client.list(args.pattern.bytes(), limit, args.cursor.as_deref()).await?));
                }
                let (mut listing, mut found) = (client.listing(args.pattern.bytes()), Vec::new());
                while let Some(entry) = listing.next().await? {
                    found.push(entry);
                }
                return Ok(entries(found));
            }
            "inspect" => return Ok(inspection(self.clients.get(&args.client)?.inspect(args.name.bytes()).await?)),
            "diagnose" => return Ok(diagnosis(&self.clients.get(&args.client)?.diagnose(args.name.bytes()).await?)),
            "force_release" => {
                let client = self.clients.get(&args.client)?;
                return Ok(json!(if args.foreign {
                    client.force_release_foreign(args.name.bytes()).await?
                } else {
                    client.force_release(args.name.bytes()).await?
                }));
            }
            "permits" => {
                let found = described!(self.clients.get(&args.client)?, args, args.name).permits().await?;
                return Ok(found.map_or(Value::Null, permits));
            }
            "set_permits" => {
                let lock = described!(self.clients.get(&args.client)?, args, args.name);
                return Ok(permits(lock.set_permits(args.permits.unwrap_or_default()).await?));
            }
            "cancel" => {
                if let Some(pending) = self.pending.lock().unwrap().get(&args.request) {
                    pending.abort();
                }
            }
            "check" => return Ok(view!(self.leases.get(&args.lease)?)),
            "release" => return Ok(json!(self.leases.get(&args.lease)?.release().await?.as_str())),
            "extend" => {
                let lease = self.leases.get(&args.lease)?;
                lease.extend(ms(args.ttl_ms.unwrap_or_default())).await?;
                return Ok(view!(lease));
            }
            "downgrade" => {
                let lease = self.leases.get(&args.lease)?;
                lease.downgrade().await?;
                return Ok(view!(lease));
            }
            "detach" => return Ok(json!(self.leases.get(&args.lease)?.detach()?)),
            "wait_lost" => {
                let lost = self.leases.get(&args.lease)?.lost();
                let reason = tokio::time::timeout(ms(args.limit_ms), lost).await.ok();
                return Ok(json!(reason.map(onelock::LossReason::as_str)));
            }
            "drop" => self.leases.remove(&args.lease),
            other => return Err(Failure::Driver(format!("there is no operation {other}"))),
        }
        Ok(Value::Null)
    }
}

async fn with(client: &Client, args: Args) -> Result<Value, Failure> {
    let args = &args;
    let body = |lease: Arc<Lease>| async move {
        let seen = view!(lease);
        match args.body {
            Body::Return => Ok(seen),
            Body::Fail => Err(Failure::Body),
            Body::UntilFree => {
                while with_lock!(MultiLock, client, args, lock => lock.is_locked().await?) {
                    tokio::time::sleep(ms(10)).await;
                }
                Ok(seen)
            }
            Body::UntilLost => std::future::pending().await,
        }
    };
    with_lock!(MultiLock, client, args, lock => lock.with(body).await)
}
