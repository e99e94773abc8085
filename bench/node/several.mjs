// The sides of Redlock in Node.js, as a child of the program that measures them: several.mjs PORTS LOCK LOCK
//
// Takes orders as c/hiredis-loop.c does, one a line, and answers each with one line:
//   onelock N   N times: acquire and release of the first lock       ->  p50_ns mean_ns
//   redlock N   the same of the second one, with the package redlock ->  p50_ns mean_ns
import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'
import Redis from 'ioredis'

const require = createRequire(import.meta.url)
const { default: Redlock } = require('redlock')
const { Client } = require('../../bindings-node')

const TTL = 30_000
const [ports, ourLock, theirLock] = process.argv.slice(2)
const hosts = ports.split(',').map((port) => `127.0.0.1:${port}`)

const client = new Client(`redlock://${hosts.join()}?quarantine_ms=0`, { ttl: TTL })
const redlock = new Redlock(hosts.map((host) => new Redis(`redis://${host}`)))
const cycles = {
  onelock: async () => {
    const lease = await client.lock(ourLock).acquire()
    await lease.release()
  },
  redlock: async () => {
    const lock = await redlock.acquire([theirLock], TTL)
    await lock.release()
  },
}

for await (const order of createInterface({ input: process.stdin })) {
  const [side, count] = order.split(' ')
  const took = new Float64Array(Number(count))
  for (let index = 0; index < took.length; index += 1) {
    const start = process.hrtime.bigint()
    await cycles[side]()
    took[index] = Number(process.hrtime.bigint() - start)
  }
  const mean = took.reduce((sum, ns) => sum + ns) / took.length
  took.sort()
  console.log(`${took[took.length >> 1]} ${Math.round(mean)}`)
}
process.exit(0)
