// Hosts as they are: timers that come early, clocks that stand, isolates that were frozen. The host is the test, the module the real one.
const assert = require('node:assert/strict')
const { readFileSync } = require('node:fs')
const { join } = require('node:path')
const test = require('node:test')
const { Module } = require('../dist/module.js')
const { nativeOver } = require('../dist/bridge.js')

const code = new WebAssembly.Module(readFileSync(join(__dirname, '..', 'dist', 'onelock.wasm')))
const GRANTED = 0
const FAILED = 7
const LOST = 8

/** A host whose time is what the test says. */
class TestHost {
  name = 'test'
  processId = 7
  time = 5_000
  date = 1_700_000_000_000
  alarm = null
  alarms = 0
  random = (bytes) => bytes.fill(++this.time % 251)
  monotonic = () => this.time
  wall = () => this.date
  dial = () => assert.fail('nothing is dialled')
  flush = () => undefined
  keepAlive = () => undefined

  setAlarm(milliseconds, ring) {
    this.alarms += 1
    this.alarm = { at: this.time + milliseconds, ring }
  }

  pass(milliseconds) {
    this.time += milliseconds
    this.date += milliseconds
  }
}

const settled = () => new Promise((resolve) => setImmediate(resolve))

/** A client in memory, and what it tells. */
function started(options = {}) {
  const host = new TestHost()
  const native = nativeOver(new Module(code, host))
  const told = []
  const batch = new Float64Array(4 * 64)
  const bridge = new native.Bridge(() => {
    const count = bridge.fetch(batch)
    for (let at = 0; at < count * 4; at += 4) told.push(Array.from(batch.subarray(at, at + 4)))
  }, false)
  const client = bridge.open('memory://', options)
  assert.notEqual(client, null)
  let calls = 0
  return {
    host,
    bridge,
    client,
    told,
    async acquire(name = 'a', wait = -1) {
      const call = ++calls
      bridge.acquire(call, client, 0, name, wait)
      await settled()
      return told.find(([about, result]) => about === call && (result === GRANTED || result === FAILED))
    },
  }
}

/** Time passes until `end` ms from now; the host's timer rings `early` ms before it is due. */
async function live(host, span, early) {
  const end = host.time + span
  for (let rings = 0; host.alarm !== null && host.alarm.at - early <= end; rings++) {
    assert.ok(rings < 100_000, 'it does nothing but set its timer')
    const { at, ring } = host.alarm
    host.alarm = null
    host.pass(Math.max(at - early - host.time, 0.1))
    ring()
    await settled()
  }
  host.pass(Math.max(end - host.time, 0))
}

for (const early of [0, 0.5, 4]) {
  test(`a lease is renewed where timers come ${early} ms early`, async () => {
    const { host, bridge, client, acquire } = started({ ttl: 1_000 })
    const [, , lease] = await acquire()
    await live(host, 10_000, early)
    assert.equal(bridge.isHeld(lease), true)
    assert.ok(client.stats().renewals >= 10, `${client.stats().renewals} renewals`)
  })
}

test('a timer that rings while the clock stands is set again, once', async () => {
  const { host, bridge, acquire } = started({ ttl: 1_000 })
  const [, , lease] = await acquire()
  for (let rings = 0; rings < 50; rings++) {
    const { ring } = host.alarm
    const before = host.alarms
    ring()
    await settled()
    assert.ok(host.alarms - before <= 1)
    assert.notEqual(host.alarm, null)
  }
  assert.equal(bridge.isHeld(lease), true)
})

test('whoever was frozen finds its lease lost at the first look, and hears of it', async () => {
  const { host, bridge, told, acquire } = started({ ttl: 1_000 })
  const [, , lease] = await acquire()
  bridge.watchLoss(lease)
  host.pass(60_000)
  assert.equal(bridge.isHeld(lease), false)
  assert.equal(bridge.remaining(lease), 0)
  host.alarm.ring()
  await settled()
  assert.ok(told.some(([about, what]) => about === lease && what === LOST))
})

test('suspend counts where only the wall clock counts it', async () => {
  const { host, bridge, acquire } = started({ ttl: 1_000 })
  const [, , lease] = await acquire()
  host.date += 60_000
  assert.equal(bridge.isHeld(lease), false)
})

test('a wall clock that is set back changes nothing', async () => {
  const { host, bridge, acquire } = started({ ttl: 1_000 })
  const [, , lease] = await acquire()
  host.date -= 3_600_000
  await live(host, 5_000, 0)
  assert.equal(bridge.isHeld(lease), true)
})

test('a wait ends in time, and a cancelled one leaves nothing', async () => {
  const { host, bridge, client, told, acquire } = started({ ttl: 60_000 })
  const [, , lease] = await acquire()
  bridge.acquire(90, client, 0, 'a', 2_000)
  bridge.acquire(91, client, 0, 'a', -1)
  await settled()
  assert.equal(client.stats().waiting, 2)
  assert.equal(bridge.cancel(91), true)
  await settled()
  assert.equal(client.stats().waiting, 1)
  await live(host, 3_000, 0)
  const [, what] = told.find(([about]) => about === 90)
  assert.equal(what, FAILED)
  assert.equal(bridge.takeFailure(90).kind, 'Timeout')
  bridge.release(92, lease)
  await settled()
  assert.equal((await acquire('a', -2))[1], GRANTED)
  assert.equal(client.stats().waiting, 0)
})

test('a host without random bytes is an error of the call', async () => {
  const { host, bridge, client } = started()
  host.random = () => {
    throw new Error('none')
  }
  bridge.acquire(1, client, 0, 'a', -1)
  await settled()
  assert.match(bridge.takeFailure(1).message, /no random bytes/)
})

test('a defect of the host in the module ends every call, and all that follow', async () => {
  const { host, bridge, client, told, acquire } = started({ ttl: 60_000 })
  await acquire()
  bridge.acquire(5, client, 0, 'a', -1)
  await settled()
  host.monotonic = () => {
    throw new Error('planted')
  }
  assert.throws(() => bridge.isHeld(1), /ended by a defect.*planted/)
  await settled()
  assert.ok(told.length >= 1)
  assert.match(bridge.takeFailure(5).message, /ended by a defect/)
  assert.equal(bridge.isHeld(1), false)
  assert.throws(() => bridge.acquire(6, client, 0, 'b', -1), /ended by a defect/)
})
