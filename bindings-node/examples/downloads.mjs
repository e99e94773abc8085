// At most three downloads at a time, on all machines together: each takes one of three permits. The address is in
// $ONELOCK_URL.
import assert from 'node:assert'
import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'onelock'

const AT_ONCE = 3
let connected = 0
let most = 0

function download(client) {
  // every program names the same number of permits
  return client.semaphore('partner:downloads', { permits: AT_ONCE }).using({ timeout: 30_000 }, async () => {
    connected += 1
    most = Math.max(most, connected)
    await sleep(30)
    connected -= 1
  })
}

// two machines, in truth processes
const machines = [await Client.connect(), await Client.connect()]
const done = await Promise.all(Array.from({ length: 12 }, (_, at) => download(machines[at % 2])))
assert(most <= AT_ONCE)
console.log(`${done.length} downloads, ${most} at a time at most`)
for (const client of machines) await client.close()
