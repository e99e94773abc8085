// One of the processes that wait for a lock: takes it, holds it for a moment, gives it back, and tells when.
import { setTimeout as pause } from 'node:timers/promises'
import { Mutex } from 'redis-semaphore'
import Redis from 'ioredis'
import { Client } from './sides.mjs'

const [port, side, name] = process.argv.slice(2)
/** Long enough for all others to be back in the queue. */
const HOLD_MS = 5

/** All processes of a machine share this clock. */
const now = () => Number(process.hrtime.bigint() / 1000n) * 1000

let take
if (side === 'onelock') {
  const client = new Client(`redis://127.0.0.1:${port}/`)
  take = async () => {
    const lease = await client.lock(name).acquire()
    return () => lease.release()
  }
} else {
  const redis = new Redis({ port: Number(port), host: '127.0.0.1' })
  take = async () => {
    const mutex = new Mutex(redis, name, { lockTimeout: 30000, acquireTimeout: 600000 })
    await mutex.acquire()
    return () => mutex.release()
  }
}

for (;;) {
  const release = await take()
  const granted = now()
  await pause(HOLD_MS)
  const released = now()
  await release()
  process.send({ granted, released })
  // the others first: whoever comes back at once would often take it again
  await pause(HOLD_MS)
}
