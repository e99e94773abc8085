// Waits for a lock, works, and releases it. The address is in $ONELOCK_URL.
import { Client, LockTimeoutError } from 'onelock'

const client = await Client.connect()
const lock = client.lock('example:orders:42')

// the shortest way: the lock around a piece of code
const total = await lock.using({ timeout: 5_000 }, async (signal, lease) => {
  console.log(`the order is ours, fencing token ${lease.fencingToken}`)
  return signal.aborted ? 0 : 42
})
console.log(`the work is done: ${total}`)

// the same by hand
const lease = await lock.acquire({ timeout: 5_000 })
try {
  // somebody else gives up after 100 ms
  await lock.acquire({ timeout: 100 })
} catch (error) {
  if (!(error instanceof LockTimeoutError)) throw error
  console.log(error.message)
} finally {
  console.log(await lease.release())
}

await client.close()
