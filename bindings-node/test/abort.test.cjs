// Cancelling: the promise rejects with the signal's own reason and nothing stays held, or it resolves. Never both, never
// neither, whenever the signal comes.
const assert = require('node:assert/strict')
const { getEventListeners } = require('node:events')
const test = require('node:test')
const { setImmediate: nextTurn } = require('node:timers/promises')
const { setUp, warnings } = require('./support/clients.cjs')
const { isClean, lookAt, reasonOf } = require('./support/cancelling.cjs')
const { until } = require('./support/server.cjs')

const { at, connect, fresh } = setUp(test)
const { isFree, undone } = lookAt(at)

test('before it is sent: nothing is sent', async () => {
  const client = connect()
  await client.check()
  const before = client.stats().commandsSent
  const reason = new Error('too late')
  assert.equal(await reasonOf(client.lock(fresh()).acquire({ signal: AbortSignal.abort(reason) })), reason)
  assert.equal(await reasonOf(client.lock(fresh()).tryAcquire({ signal: AbortSignal.abort(reason) })), reason)
  assert.equal(await reasonOf(client.lock(fresh()).using({ signal: AbortSignal.abort(reason) }, () => 1)), reason)
  assert.equal(client.stats().commandsSent, before)
  assert.equal(client.stats().acquired, 0)
})

test('in flight: what the server does later is undone', async () => {
  const client = connect({ requestTimeout: 10_000 })
  const name = fresh()
  await client.check()
  at.server.stop()
  const controller = new AbortController()
  const acquiring = client.lock(name).acquire({ signal: controller.signal })
  setTimeout(() => controller.abort('enough'), 20)
  assert.equal(await reasonOf(acquiring), 'enough')
  at.server.cont()
  await undone(name, client)
})

test('while it waits: the next one in line gets the lock', async () => {
  const client = connect()
  const other = connect()
  const name = fresh()
  const lease = await client.lock(name).acquire()
  const controller = new AbortController()
  const first = other.lock(name).acquire({ signal: controller.signal })
  const second = other.lock(name).acquire()
  await until(() => other.stats().waiting === 2)
  controller.abort()
  const reason = await reasonOf(first)
  assert.equal(reason, controller.signal.reason)
  assert.equal(reason.name, 'AbortError')
  await lease.release()
  const next = await second
  assert.equal(next.held, true)
  await next.release()
})

test('a signal that times out', async () => {
  const client = connect()
  const lease = await client.lock(fresh()).acquire()
  const reason = await reasonOf(
    connect()
      .lock(lease.name)
      .acquire({ signal: AbortSignal.timeout(20) }),
  )
  assert.equal(reason.name, 'TimeoutError')
  await lease.release()
})

test('a signal that comes after the grant changes nothing', async () => {
  const client = connect()
  const controller = new AbortController()
  const { signal } = controller
  const lease = await client.lock(fresh()).acquire({ signal })
  assert.equal(getEventListeners(signal, 'abort').length, 0, 'the listener is gone')
  controller.abort()
  await at.server.send('PING')
  assert.equal(lease.held, true)
  assert.equal(lease.signal.aborted, false)
  await lease.release()
})

test('no listener is left after a failure', async () => {
  const client = connect()
  const lease = await client.lock(fresh()).acquire()
  const { signal } = new AbortController()
  await assert.rejects(client.lock(lease.name).acquire({ timeout: 5, signal }))
  assert.equal(await client.lock(lease.name).tryAcquire({ signal }), null)
  assert.equal(getEventListeners(signal, 'abort').length, 0)
  await lease.release()
})

test('one signal for many acquires', async () => {
  const client = connect()
  const lease = await client.lock(fresh()).acquire()
  const controller = new AbortController()
  const all = Array.from({ length: 8 }, () => client.lock(lease.name).acquire({ signal: controller.signal }))
  const ended = Promise.allSettled(all)
  await until(() => client.stats().waiting === 8)
  controller.abort('all')
  for (const { reason } of await ended) assert.equal(reason, 'all')
  await lease.release()
  await until(() => isClean(client))
  assert.equal(await isFree(lease.name), true)
})

test('a signal at any instant: one of two, and nothing is left', async () => {
  const client = connect()
  const other = connect()
  const name = fresh()
  let granted = 0
  let refused = 0
  async function one(turn) {
    const controller = new AbortController()
    const acquiring = (turn % 2 ? client : other).lock(name).acquire({ signal: controller.signal })
    const delay = Math.random() * 3
    const timer =
      turn % 3 ? setTimeout(() => controller.abort(turn), delay) : setImmediate(() => controller.abort(turn))
    try {
      const lease = await acquiring
      granted += 1
      assert.equal(lease.held, true)
      await nextTurn()
      assert.equal(await lease.release(), 'released')
    } catch (reason) {
      if (reason !== turn) throw reason
      refused += 1
    } finally {
      clearTimeout(timer)
    }
  }
  for (let round = 0; round < 60; round += 1) {
    await Promise.all(Array.from({ length: 8 }, (_, index) => one(round * 8 + index)))
  }
  assert.equal(granted + refused, 480)
  assert.ok(granted > 0 && refused > 0, `${granted} granted, ${refused} refused`)
  await undone(name, client, other)
})

test('many waiters for one signal are no reason for a warning', async () => {
  const client = connect()
  const name = fresh()
  const lease = await client.lock(name).acquire()
  const controller = new AbortController()
  const reason = new Error('enough')
  const seen = await warnings(async () => {
    const { signal } = controller
    const all = Array.from({ length: 30 }, () => reasonOf(client.lock(name).acquire({ signal })))
    assert.equal(getEventListeners(signal, 'abort').length, 1)
    // one that ends by itself takes nothing from the others
    assert.equal(await client.lock(name).tryAcquire({ signal }), null)
    assert.equal(getEventListeners(signal, 'abort').length, 1)
    await until(() => client.stats().waiting === 30)
    controller.abort(reason)
    assert.deepEqual(new Set(await Promise.all(all)), new Set([reason]))
    assert.equal(getEventListeners(signal, 'abort').length, 0)
    await nextTurn()
  })
  assert.deepEqual(seen, [])
  await lease.release()
})

test('a signal that is used again and again is listened to only while somebody waits', async () => {
  const client = connect()
  const { signal } = new AbortController()
  for (let round = 0; round < 3; round += 1) {
    const lease = await client.lock(fresh()).acquire({ signal })
    assert.equal(getEventListeners(signal, 'abort').length, 0)
    await lease.release()
  }
})
