// One of several processes that have a lock in turn: turns.mjs KIND PORT NAME NOTES INDEX MODE HOLD_US. See main.py.
import dgram from 'node:dgram'
import { once } from 'node:events'
import { openSync, readSync, writeSync } from 'node:fs'
import { setTimeout as pause } from 'node:timers/promises'

const [HOLDER, RELEASED, COUNT, CAPACITY, PORTS, FIRST, MANY] = [0, 1, 2, 3, 8, 64, 500]
const [, port, name, path, index, mode, holdUs] = process.argv.slice(2)
const { Client } = await import(process.env.ONELOCK_PACKAGE)
const me = Number(index)
const hold = Number(holdUs) / 1000
const notes = openSync(path, 'r+')
const word = Buffer.alloc(8)
const get = (at) => {
  readSync(notes, word, 0, 8, at * 8)
  return Number(word.readBigInt64LE())
}
const set = (at, value) => {
  word.writeBigInt64LE(BigInt(value))
  writeSync(notes, word, 0, 8, at * 8)
}
const now = () => Number(process.hrtime.bigint())
const news = dgram.createSocket('udp4')
news.bind(0, '127.0.0.1')
await once(news, 'listening')
set(PORTS + me, news.address().port)

/** The lock was got. False when enough has been measured. */
function granted(who) {
  const at = now()
  const [before, released, count] = [get(HOLDER), get(RELEASED), get(COUNT)]
  const goesOn = count < get(CAPACITY)
  if (goesOn) {
    for (const [index, value] of [at - released, who, at].entries()) set(FIRST + count * 3 + index, value)
    set(COUNT, count + 1)
  }
  set(HOLDER, who)
  if (before >= 0 && before !== who) news.send('!', get(PORTS + before), '127.0.0.1')
  return goesOn
}

const client = new Client(`redis://127.0.0.1:${port}/`)
const lock = process.env.BENCH_LOCK === 'fair' ? client.fairLock(name) : client.lock(name)
async function turn(who) {
  const lease = await lock.acquire()
  const goesOn = granted(who)
  if (hold > 0) await pause(hold)
  set(RELEASED, now())
  await lease.release()
  return goesOn
}

console.log('ready')
await once(process.stdin, 'data')
process.stdin.pause()
if (mode === 'inside') {
  const work = async (number) => {
    while (await turn(-1 - number));
  }
  await Promise.all(Array.from({ length: MANY }, (_, number) => work(number)))
} else {
  const another = () => once(news, 'message')
  const inTurns = mode === 'turns'
  let heard = inTurns && another()
  while (await turn(me)) {
    if (!inTurns) continue
    await heard
    heard = another()
  }
}
// until it is killed
await pause(600_000)
