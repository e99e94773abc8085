// Loss: held, signal, events, errors.
const assert = require('node:assert/strict')
const { AsyncLocalStorage } = require('node:async_hooks')
const { once } = require('node:events')
const test = require('node:test')
const { LockLostError } = require('onelock')
const { block, setUp, warnings } = require('./support/clients.cjs')
const { until } = require('./support/server.cjs')

const { at, connect, fresh } = setUp(test)
const quick = { renewEvery: 20 }

test('a deleted key: signal, event and error tell the same', async () => {
  const lease = await connect().lock(fresh(), quick).acquire()
  const { signal } = lease
  assert.equal(signal, lease.signal)
  assert.equal(signal.aborted, false)
  const heard = []
  lease.on('lost', (...args) => heard.push(args))
  await at.server.send('DEL', lease.name)
  await once(signal, 'abort')
  assert.equal(lease.held, false)
  assert.equal(lease.remaining, 0)
  assert.equal(lease.holdCount, 0)
  assert.equal(lease.loss, 'taken')
  assert.ok(signal.reason instanceof LockLostError)
  assert.equal(signal.reason.code, 'ERR_ONELOCK_LOST')
  assert.equal(signal.reason.reason, 'taken')
  assert.match(signal.reason.message, /^hold "name-.*": the lease was lost: the server no longer knows it/)
  assert.deepEqual(heard, [['taken', signal.reason]])
  const error = await lease.extend(1000).catch((thrown) => thrown)
  assert.ok(error instanceof LockLostError)
  assert.equal(error.reason, 'taken')
  assert.throws(() => lease.detach(), LockLostError)
  assert.equal(await lease.release(), 'already_expired')
  assert.equal(lease.loss, 'taken')
})

test('max_hold ends a hold', async () => {
  const lease = await connect().lock(fresh(), { maxHold: 60 }).acquire()
  const [reason] = await once(lease, 'lost')
  assert.equal(reason, 'max_hold')
  assert.equal(lease.loss, 'max_hold')
  await lease.release()
})

test('a lease without renewal expires, and says so at the first look', async () => {
  const lease = await connect().lock(fresh(), { ttl: 50, autoRenew: false }).acquire()
  block(60)
  assert.equal(lease.held, false)
  assert.equal(lease.loss, 'expired')
  assert.equal(lease.signal.aborted, true, 'a signal that is first looked at after the loss')
  assert.equal(lease.signal.reason.reason, 'expired')
  await lease.release()
})

test('a listener that comes after the loss is told too', async () => {
  const lease = await connect().lock(fresh(), { ttl: 50, autoRenew: false }).acquire()
  block(60)
  const [reason] = await once(lease, 'lost')
  assert.equal(reason, 'expired')
  await lease.release()
})

test('jeopardy comes while the lease is valid', async () => {
  const client = connect({ requestTimeout: 50 })
  const lease = await client.lock(fresh(), { ttl: 20_000, renewEvery: 50 }).acquire()
  const jeopardy = once(lease, 'jeopardy')
  at.server.stop()
  await jeopardy
  assert.equal(lease.held, true)
  assert.equal(lease.signal.aborted, false)
  at.server.cont()
  // its answer may take longer than this client's requests may
  assert.match(await lease.release(), /^(released|unconfirmed)$/)
})

test('a release is no loss', async () => {
  const client = connect()
  const lease = await client.lock(fresh(), quick).acquire()
  let told = 0
  lease.on('lost', () => told++)
  const { signal } = lease
  await lease.release()
  const other = await client.lock(fresh(), quick).acquire()
  await at.server.send('DEL', other.name)
  await once(other, 'lost')
  assert.equal(told, 0)
  assert.equal(signal.aborted, false)
  await other.release()
})

test('what a listener throws is a warning, and the others are told', async () => {
  const client = connect()
  const lease = await client.lock(fresh(), quick).acquire()
  const other = await client.lock(fresh(), quick).acquire()
  lease.on('lost', () => {
    throw new Error('a listener of the test')
  })
  const seen = await warnings(async (warned) => {
    await at.server.send('DEL', lease.name, other.name)
    await once(other, 'lost')
    await until(() => warned.length > 0, 'a warning')
  })
  assert.equal(seen.length, 1)
  assert.equal(seen[0].name, 'OnelockWarning')
  assert.equal(seen[0].code, 'ONELOCK_LISTENER_THREW')
  assert.match(seen[0].message, /a listener of a lease of "name-.*" threw: Error: a listener of the test/)
  await Promise.all([lease.release(), other.release()])
})

test('listeners run in the async context in which they were added', async () => {
  const storage = new AsyncLocalStorage()
  const client = connect()
  const lease = await storage.run('acquirer', () => client.lock(fresh(), quick).acquire())
  const seen = new Promise((resolve) => {
    storage.run('listener', () => lease.on('lost', () => resolve(storage.getStore())))
  })
  await at.server.send('DEL', lease.name)
  assert.equal(await seen, 'listener')
  assert.equal(storage.getStore(), undefined)
  await lease.release()
})

test('a server that is gone: the deadline ends the lease', async () => {
  const client = connect({ requestTimeout: 100 })
  const lease = await client.lock(fresh(), { ttl: 400 }).acquire()
  at.server.stop()
  try {
    const [reason] = await once(lease, 'lost')
    assert.equal(reason, 'expired')
    assert.equal(lease.held, false)
  } finally {
    at.server.cont()
  }
  await lease.release()
})
