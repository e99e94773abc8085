// A job that every instance of a service has on its timetable, and that only one of them runs each time, although their
// clocks differ. The address is in $ONELOCK_URL.
import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'onelock'

/** What the instances' clocks differ by at most. No more than the ttl, which is 30 s where nothing else is said. */
const apart = 10_000

/** Runs the job at every full `period`, unless another instance does. */
async function timetable(client, name, period, job, until, late) {
  for (;;) {
    const slot = Math.floor((Date.now() - late) / period) + 1
    if (slot > until) return
    await sleep(slot * period + late - Date.now())
    // released early, the lock stays taken all the same: who is late finds the job done
    const lease = await client.lock(`${name}:${slot}`, { minHold: apart }).tryAcquire()
    if (lease === null) continue // another instance runs it, or has run it
    try {
      await job(slot, lease.signal)
    } finally {
      await lease.release()
    }
  }
}

// ---- the demonstration: three instances whose clocks differ, five times

const period = 500
const last = Math.floor(Date.now() / period) + 5
const runs = new Map()

async function instance(number) {
  const client = await Client.connect()
  const job = async (slot) => {
    console.log(`instance ${number} runs the job of ${new Date(slot * period).toISOString()}`)
    runs.set(slot, (runs.get(slot) ?? 0) + 1)
  }
  await timetable(client, 'example:report', period, job, last, number * 25)
  await client.close()
}

await Promise.all([instance(0), instance(1), instance(2)])
if (runs.size < 3 || [...runs.values()].some((count) => count !== 1)) {
  console.error('each time the job must run once:', runs)
  process.exitCode = 1
}
