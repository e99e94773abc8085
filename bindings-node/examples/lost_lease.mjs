// A lease that is lost while its holder works: three ways to hear of it, from convenient to certain. The address is in
// $ONELOCK_URL. Here the example itself plays the operator who takes the lock away.
import { setTimeout as sleep } from 'node:timers/promises'
import { Client, FenceGate, LockLostError } from 'onelock'

const client = await Client.connect()
const gate = new FenceGate() // beside the protected resource
const lock = client.lock('example:lost', { ttl: 600 })

try {
  await lock.using(async (signal, lease) => {
    lease.on('lost', (reason) => console.log(`event: lost, ${reason}`))
    gate.admit(lease.fencingToken)

    await client.forceRelease('example:lost')
    const next = await lock.acquire()
    gate.admit(next.fencingToken)
    // 3. certain: until its next renewal the old holder believes in its lease; the resource does not
    if (gate.admit(lease.fencingToken)) throw new Error('a late write went through')
    console.log('the resource turned the old holder away')

    // 1. convenient: give the signal to fetch, to timers, to streams
    await sleep(60_000, 'done', { signal }).catch((error) => console.log(`timer: ${error.name}`))
    // 2. the truth at any time: no I/O, no waiting
    console.log(`held: ${lease.held}`)
    await next.release()
  })
  throw new Error('nobody noticed')
} catch (error) {
  if (!(error instanceof LockLostError)) throw error
  console.log(error.message)
}
await client.close()
