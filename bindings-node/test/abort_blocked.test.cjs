// Cancelling beside an event loop that is blocked: the core goes on without it, on a thread of its own.
const assert = require('node:assert/strict')
const test = require('node:test')
const { setImmediate: nextTurn } = require('node:timers/promises')
const { block, setUp } = require('./support/clients.cjs')
const { isClean, lookAt, reasonOf } = require('./support/cancelling.cjs')
const { until } = require('./support/server.cjs')

const { at, connect, fresh } = setUp(test)
const { isFree, undone } = lookAt(at)

test('in flight beside a loop that is blocked: undone without it', async () => {
  const client = connect({ requestTimeout: 30_000 })
  const name = fresh()
  const lock = client.lock(name)
  for (let round = 0; round < 3; round += 1) await (await lock.acquire()).release()
  const { commandsSent } = client.stats()
  at.server.stop()
  try {
    const controller = new AbortController()
    const acquiring = lock.acquire({ signal: controller.signal })
    // the server has the request, and nobody has its answer
    await until(() => client.stats().commandsSent > commandsSent)
    controller.abort('enough')
    assert.equal(await reasonOf(acquiring), 'enough')
    await nextTurn()
  } finally {
    at.server.cont()
  }
  // the loop does not come by until it is granted and released: over its own connection, or the shared one
  const end = Date.now() + 10_000
  while (client.stats().commandsSent < commandsSent + 2 || !isClean(client)) {
    assert.ok(Date.now() < end, 'not undone while the loop is blocked')
    block(1)
  }
  assert.equal(client.stats().renewals, 0)
  assert.ok(await isFree(name))
})

test('granted but not delivered: the lease is released', async () => {
  const client = connect()
  const name = fresh()
  await client.check()
  const controller = new AbortController()
  const acquiring = client.lock(name).acquire({ signal: controller.signal })
  // the grant comes in while the event loop cannot take it
  block(20)
  while (client.stats().acquired === 0) block(1)
  controller.abort()
  assert.equal(await reasonOf(acquiring), controller.signal.reason)
  await undone(name, client)
  assert.equal(client.stats().lost, 0)
})

test('cancelled by a listener in the same batch as the grant', async () => {
  const client = connect()
  const doomed = await client.lock(fresh(), { renewEvery: 20 }).acquire()
  const name = fresh()
  const controller = new AbortController()
  doomed.on('lost', () => controller.abort('a listener'))
  // a foreign holder, so that the grant comes after the loss
  await at.server.send('SET', name, 'foreign', 'PX', 200)
  await at.server.send('DEL', doomed.name)
  const acquiring = client.lock(name).acquire({ signal: controller.signal })
  const { lost, acquired } = client.stats()
  assert.deepEqual([lost, acquired], [0, 1])
  block(100)
  while (client.stats().acquired < 2 || client.stats().lost < 1) block(1)
  assert.equal(await reasonOf(acquiring), 'a listener')
  await doomed.release()
  await undone(name, client)
})
