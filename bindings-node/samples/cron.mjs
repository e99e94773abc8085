// A job that every instance of a service has on its timetable, and that only one of them runs each time. The address is
// in $ONELOCK_URL.
import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'onelock'

/** Runs the job at every full `period`, unless another instance does. Clocks may differ by less than a period. */
async function timetable(client, name, period, job, until) {
  for (;;) {
    const slot = Math.floor(Date.now() / period) + 1
    if (slot > until) return
    await sleep(slot * period - Date.now())
    // one lock for each time on the table; it is renewed as long as the job runs
    const lease = await client.lock(`${name}:${slot}`, { ttl: 2 * period }).tryAcquire()
    if (lease === null) continue // another instance has it, or has done it
    try {
      await job(slot, lease.signal)
      // not released: it stays until its ttl is over, so that an instance whose clock is late finds it done
      if (lease.held) lease.detach()
    } finally {
      // after an error: the next instance may try. After detach this does nothing
      await lease.release()
    }
  }
}

// ---- the demonstration: three instances, five times

const period = 300
const last = Math.floor(Date.now() / period) + 5
const runs = new Map()

async function instance(number) {
  const client = await Client.connect()
  const job = async (slot) => {
    console.log(`instance ${number} runs the job of ${new Date(slot * period).toISOString()}`)
    runs.set(slot, (runs.get(slot) ?? 0) + 1)
  }
  await timetable(client, 'sample:report', period, job, last)
  await client.close()
}

await Promise.all([instance(1), instance(2), instance(3)])
if (runs.size < 3 || [...runs.values()].some((count) => count !== 1)) {
  console.error('each time the job must run once:', runs)
  process.exitCode = 1
}
