// One of the processes that wait for a lock: takes it, holds it for a moment, releases it, and comes back when it is
// told that another one has it: not as a newcomer who takes it away from those who wait.
import { once } from 'node:events'
import { setTimeout as pause } from 'node:timers/promises'
import { Mutex } from 'redis-semaphore'
import Redis from 'ioredis'
import { Client } from './sides.mjs'

const [port, side, name] = process.argv.slice(2)
/** Long enough for the one before to stand in line again. */
const HOLD_MS = [2, 20]

/** All processes of a machine share this clock. */
const now = () => Number(process.hrtime.bigint() / 1000n) * 1000

let take
if (side === 'onelock') {
  const client = new Client(`redis://127.0.0.1:${port}/`)
  take = async () => {
    const lease = await client.lock(name).acquire()
    return () => lease.release()
  }
} else if (side === 'blpop') {
  // the floor: the server hands a word from one to another, and nothing else
  const [waits, gives] = [0, 1].map(() => new Redis({ port: Number(port), host: '127.0.0.1' }))
  take = async () => {
    await waits.blpop(name, 0)
    return () => gives.lpush(name, 'it is yours')
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
  process.send({ granted: now() })
  await pause(HOLD_MS[0] + Math.random() * (HOLD_MS[1] - HOLD_MS[0]))
  const another = once(process, 'message')
  const released = now()
  await release()
  await another
  // what takes time is told when nobody waits for it
  process.send({ released })
}
