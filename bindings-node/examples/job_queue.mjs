// A fair job queue: three machines take jobs from one list, and each gets its turn in the order in which they ask. With a
// plain `lock`, the machine that is quickest to ask again could take them all. The address is in $ONELOCK_URL.
import assert from 'node:assert'
import { setTimeout as sleep } from 'node:timers/promises'
import { Client } from 'onelock'

// really a table or a queue that all machines read
const jobs = Array.from({ length: 30 }, (_, at) => at + 1)

// takes the next job, under the lock; undefined when there is none
function take(client) {
  return client.fairLock('example:jobs').using({ timeout: 30_000 }, async (_signal, lease) => {
    const job = jobs.shift()
    // the list is marked and written meanwhile, with lease.fencingToken
    await sleep(10)
    assert(lease.held)
    return job
  })
}

// one machine: in truth a process of its own, with a client of its own
async function machine() {
  const client = await Client.connect()
  const taken = []
  for (let job = await take(client); job !== undefined; job = await take(client)) taken.push(job)
  await client.close()
  return taken
}

const taken = await Promise.all([machine(), machine(), machine()])
const done = taken.flat().sort((one, other) => one - other)
assert.deepEqual(
  done,
  Array.from({ length: 30 }, (_, at) => at + 1),
)
const most = Math.max(...taken.map((one) => one.length))
console.log(`${done.length} jobs, each taken once; no machine took more than ${most}`)
