// A whole cycle with waiting, cancelling, renewal and loss, for runtimes other than Node.js.
import { Client } from 'onelock'
import Redlock from 'onelock/redlock'

const check = (holds, what) => {
  if (!holds) throw new Error(what)
}
check(typeof Redlock === 'function' && typeof Redlock.prototype.using === 'function', 'the default is not the class')

const client = new Client(process.env.ONELOCK_URL, { ttl: 900 })
const lock = client.lock('runtimes')
for (let round = 0; round < 20; round += 1) await (await lock.acquire()).release()

const lease = await lock.acquire()
const waiting = lock.acquire()
const controller = new AbortController()
const cancelled = lock.acquire({ signal: controller.signal }).catch((reason) => reason)
controller.abort('enough')
check((await cancelled) === 'enough', 'the reason of the signal')
// longer than the ttl, and without the event loop
const end = performance.now() + 1200
while (performance.now() < end);
check(lease.held, 'it was not renewed')
check((await lease.release()) === 'released', 'it was not released')

const next = await waiting
check(next.fencingToken > lease.fencingToken, 'the fencing token')
const lost = new Promise((resolve) => next.signal.addEventListener('abort', () => resolve(next.signal.reason)))
await client.forceRelease('runtimes')
// hearing of a loss keeps no process alive
const alive = setInterval(() => {}, 1000)
check((await lost).code === 'ERR_ONELOCK_LOST', 'the loss')
clearInterval(alive)

await lock.using(async (_signal, inside) => check(inside.held, 'not held inside'))
await client.close()
console.log('good')
