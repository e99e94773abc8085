// Several locks at once: all or none, one lease, and no circle of waiters.
const assert = require('node:assert/strict')
const { once } = require('node:events')
const test = require('node:test')
const {
  InvalidArgumentError,
  LockBusyError,
  LockLostError,
  LockTimeoutError,
  MultiLock,
  ClientClosedError,
} = require('onelock')
const { setUp, warnings } = require('./support/clients.cjs')
const { until } = require('./support/server.cjs')

const { at, connect, fresh } = setUp(test)
const exists = (name) => at.server.send('EXISTS', name)
const free = async (...names) => (await Promise.all(names.map(exists))).every((found) => found === 0)

test('all are held together and released together', async () => {
  const client = connect()
  const names = [`${fresh()}:b`, `${fresh()}:a`]
  const both = client.multiLock(names)
  assert.deepEqual(both.names, names)
  assert.equal(both.kind, 'multi_lock')
  assert.equal(both.name, names.join(', '))
  const lease = await both.acquire({ timeout: 5000 })
  assert.ok(lease.held && lease.remaining > 20_000)
  assert.deepEqual(lease.names, names)
  assert.equal(lease.kind, 'multi_lock')
  assert.equal(lease.fencingToken, null)
  for (const name of names) assert.equal(typeof lease.fencingTokens.get(name), 'number')
  assert.equal(await both.isLocked(), true)
  assert.equal(await both.tryAcquire(), null)
  await assert.rejects(both.acquire({ timeout: 0 }), (error) => {
    return error instanceof LockBusyError && error.lock === names[0]
  })
  await lease.extend(60_000)
  assert.ok(lease.remaining > 50_000)
  assert.equal(await lease.release(), 'released')
  assert.equal(await lease.release(), 'already_released')
  assert.ok(await free(...names))
  assert.equal(typeof lease.fencingTokens.get(names[0]), 'number', 'readable after the release')
  const one = await client.lock(names[0]).acquire()
  assert.deepEqual([one.names, one.fencingTokens], [[names[0]], new Map([[names[0], one.fencingToken]])])
  await one.release()
})

test('when one is taken none is held', async () => {
  const [client, rival] = [connect(), connect()]
  const names = [`${fresh()}:a`, `${fresh()}:b`]
  const theirs = await rival.lock(names[1]).acquire()
  const both = client.multiLock(names)
  assert.equal(await both.tryAcquire(), null)
  assert.ok(await free(names[0]))
  await assert.rejects(both.acquire({ timeout: 50 }), LockTimeoutError)
  assert.ok(await free(names[0]))
  const controller = new AbortController()
  const waiting = both.acquire({ signal: controller.signal })
  await until(async () => client.stats().waiting === 1)
  controller.abort(new Error('enough'))
  await assert.rejects(waiting, /enough/)
  await until(() => free(names[0]))
  const next = both.using(async (_signal, lease) => lease.held)
  await until(async () => client.stats().waiting === 1)
  await theirs.release()
  assert.equal(await next, true)
  assert.ok(await free(...names))
})

test('members of any kind and client; the async context is the owner of the reentrant ones', async () => {
  const [one, other] = [connect(), connect({ prefix: 'other:' })]
  const name = fresh()
  const several = MultiLock.of(one.lock(name, { ttl: 10_000 }), other.reentrantLock(name))
  await several.using(async (_signal, lease) => {
    assert.ok(lease.remaining <= 10_000)
    const inner = await other.reentrantLock(name).acquire({ timeout: 1000 })
    assert.equal(inner.holdCount, 2)
    await inner.release()
    assert.equal(await one.lock(name).tryAcquire(), null)
  })
  assert.ok(await free(name, `other:${name}`))
  await other.reentrantLock(name).using(async (_signal, outer) => {
    await several.using(async () => assert.equal(outer.holdCount, 2))
    assert.ok(outer.held)
  })
})

test('what does not go together is refused', async () => {
  const client = connect()
  const name = fresh()
  assert.throws(() => client.multiLock([]), /at least one/)
  assert.throws(() => client.multiLock('a'), InvalidArgumentError)
  assert.throws(() => MultiLock.of(name), InvalidArgumentError)
  assert.throws(() => client.multiLock([name], { ttl: 'long' }), InvalidArgumentError)
  await assert.rejects(MultiLock.of(client.lock(name), client.reentrantLock(name)).acquire(), /one kind of lock/)
  const many = Array.from({ length: 33 }, (_, number) => `${name}:${number}`)
  await assert.rejects(client.multiLock(many).acquire(), /33 locks/)
  await assert.rejects(client.multiLock([name]).tryAcquire({ timeout: 5 }), InvalidArgumentError)
  await assert.rejects(client.multiLock([name]).using({}, 'body'), InvalidArgumentError)
  assert.equal(client.stats().commandsSent, 0)
  // one that is named twice is held once
  const lease = await client.multiLock([name, `${name}:b`, name]).acquire({ timeout: 5000 })
  assert.deepEqual(lease.names, [name, `${name}:b`])
  await lease.release()
})

test('the first loss is the loss of the whole, told once', async () => {
  const client = connect()
  const names = [fresh(), fresh()]
  const both = MultiLock.of(...names.map((name) => client.lock(name, { renewEvery: 20 })))
  const lease = await both.acquire()
  const heard = []
  lease.on('lost', (reason) => heard.push(reason))
  const { signal } = lease
  await at.server.send('DEL', names[1])
  await once(signal, 'abort')
  assert.ok(!lease.held && lease.remaining === 0 && lease.loss === 'taken')
  assert.ok(signal.reason instanceof LockLostError)
  assert.match(signal.reason.message, new RegExp(names.join(', ')))
  assert.equal(client.stats().held, 0)
  assert.equal(await lease.release(), 'already_expired')
  await until(() => free(...names))
  assert.deepEqual(heard, ['taken'])

  const lost = both.using(async (inside) => {
    await at.server.send('DEL', names[0])
    await once(inside, 'abort')
  })
  await assert.rejects(lost, LockLostError)
  await until(() => free(...names))
})

test('a detached one is taken over member by member', async () => {
  const client = connect()
  const names = [fresh(), fresh()]
  const lease = await client.multiLock(names).acquire()
  const proofs = lease.detach().split('\n')
  assert.equal(proofs.length, 2)
  assert.equal(lease.held, false)
  for (const [at, name] of names.entries()) {
    const attached = await connect().lock(name).attach(proofs[at])
    assert.equal(await attached.release(), 'released')
  }
})

test('closing a client ends the whole, and who waits', async () => {
  const [one, other] = [connect(), connect()]
  const names = [`a:${fresh()}`, `b:${fresh()}`]
  const lease = await MultiLock.of(one.lock(names[0]), other.lock(names[1])).acquire()
  const lost = once(lease, 'lost')
  const waiting = one.multiLock([`0:${names[0]}`, names[1]]).acquire()
  await until(async () => one.stats().waiting === 1)
  await Promise.all([one.close(), assert.rejects(waiting, ClientClosedError)])
  assert.equal((await lost)[0], 'closed')
  assert.equal(await lease.release(), 'already_expired')
  await until(() => free(names[1], `0:${names[0]}`))
})

test('overlapping sets get on', async () => {
  const clients = [connect(), connect()]
  const forks = Array.from({ length: 4 }, () => fresh())
  const used = new Map(forks.map((fork) => [fork, 0]))
  const seats = Array.from({ length: 8 }, async (_, seat) => {
    const mine = [forks[seat % 4], forks[(seat + 1) % 4]]
    if (seat % 3 === 0) mine.reverse()
    const both = clients[seat % 2].multiLock(mine)
    for (let meal = 0; meal < 10; meal += 1) {
      await both.using({ timeout: 60_000 }, async () => {
        for (const fork of mine) {
          used.set(fork, used.get(fork) + 1)
          assert.equal(used.get(fork), 1)
        }
        await new Promise(setImmediate)
        for (const fork of mine) used.set(fork, used.get(fork) - 1)
      })
    }
  })
  await Promise.all(seats)
  assert.ok(await free(...forks))
})

test('without a leak', async () => {
  const client = connect()
  const seen = await warnings(async () => {
    await using_(client.multiLock([fresh(), fresh()]))
  })
  assert.deepEqual(seen, [])
})

async function using_(both) {
  const lease = await both.acquire()
  await lease[Symbol.asyncDispose]()
}
