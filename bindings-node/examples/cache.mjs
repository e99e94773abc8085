// A cache that many read and that one refreshes: readers share the lock, and whoever finds the value too old takes it alone,
// looks again, and refreshes it once for all. The address is in $ONELOCK_URL.
import assert from 'node:assert'
import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'onelock'

// what all machines read: really a file or a row
const cache = { value: undefined, refreshed: 0 }

async function refresh() {
  await sleep(50)
  cache.refreshed += 1
  cache.value = 41 + cache.refreshed
}

async function read(client) {
  const lock = client.rwLock('example:cache')
  // many at a time
  const found = await lock.read().using(async () => cache.value)
  if (found !== undefined) return found
  return lock.write().using({ timeout: 30_000 }, async (_signal, lease) => {
    // another one may have refreshed it while this one waited
    if (cache.value === undefined) await refresh()
    // others may read from here on, and no writer comes in between
    await lease.downgrade()
    return cache.value
  })
}

// two machines, in truth processes
const machines = [await Client.connect(), await Client.connect()]
const values = await Promise.all(Array.from({ length: 20 }, (_, at) => read(machines[at % 2])))
assert(values.every((value) => value === 42))
console.log(`${values.length} readers, refreshed ${cache.refreshed} time`)
for (const client of machines) await client.close()
