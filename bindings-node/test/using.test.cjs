// The scope form: what the body sees, how it ends, who re-enters.
const assert = require('node:assert/strict')
const { AsyncLocalStorage } = require('node:async_hooks')
const { once } = require('node:events')
const test = require('node:test')
const { setTimeout: pause } = require('node:timers/promises')
const { LockBusyError, LockLostError, LockTimeoutError, Owner } = require('onelock')
const { setUp } = require('./support/clients.cjs')
const { until } = require('./support/server.cjs')

const { at, connect, fresh } = setUp(test)
const quick = { renewEvery: 20 }

test('the body holds the lock, and its value is passed on', async () => {
  const client = connect()
  const lock = client.lock(fresh())
  let kept
  const value = await lock.using(async (signal, lease) => {
    kept = lease
    assert.equal(signal, lease.signal)
    assert.equal(signal.aborted, false)
    assert.equal(lease.held, true)
    assert.equal(await connect().lock(lock.name).tryAcquire(), null)
    return { sum: 3 }
  })
  assert.deepEqual(value, { sum: 3 })
  assert.equal(kept.held, false)
  assert.equal(await lock.isLocked(), false)
  assert.equal(await lock.using(() => 'a plain value'), 'a plain value')
  assert.equal(await lock.using({ timeout: 50 }, () => undefined), undefined)
})

test('options of waiting', async () => {
  const client = connect()
  const lease = await client.lock(fresh()).acquire()
  let ran = false
  const body = () => {
    ran = true
  }
  await assert.rejects(client.lock(lease.name).using({ timeout: 10 }, body), LockTimeoutError)
  await assert.rejects(client.lock(lease.name).using({ timeout: 0 }, body), LockBusyError)
  assert.equal(ran, false)
  await lease.release()
})

test("the body's own error comes out, whatever became of the lease", async () => {
  const client = connect()
  const lock = client.lock(fresh(), quick)
  const mine = new Error('mine')
  const fail = () => Promise.reject(mine)
  const outcome = (body) => lock.using(body).then(assert.fail, (error) => error)
  assert.equal(await outcome(fail), mine)
  assert.equal(mine.cause, undefined)
  assert.equal(
    await outcome(() => {
      throw mine
    }),
    mine,
  )
  // lost: told as the cause
  const lostFirst = async (signal) => {
    await at.server.send('DEL', lock.name)
    await once(signal, 'abort')
    throw mine
  }
  assert.equal(await outcome(lostFirst), mine)
  assert.ok(mine.cause instanceof LockLostError)
  assert.equal(mine.cause.reason, 'taken')
  // an error that has a cause keeps it; what is no error is left alone
  const other = new Error('other', { cause: 'its own' })
  for (const thrown of [other, Object.freeze(new Error('frozen')), 'text', null, undefined]) {
    const body = async (signal) => {
      await at.server.send('DEL', lock.name)
      await once(signal, 'abort')
      throw thrown
    }
    assert.equal(await outcome(body), thrown)
  }
  assert.equal(other.cause, 'its own')
  // a server that does not answer the release
  const silent = connect({ requestTimeout: 50 })
  const error = await silent
    .lock(fresh())
    .using(async () => {
      at.server.stop()
      throw mine
    })
    .catch((thrown) => thrown)
  at.server.cont()
  assert.equal(error, mine)
})

test('a body that ended well after the loss', async () => {
  const client = connect()
  const lock = client.lock(fresh(), quick)
  let reason
  const using = lock.using(async (signal) => {
    await at.server.send('DEL', lock.name)
    await once(signal, 'abort')
    reason = signal.reason
    return 'done'
  })
  const error = await using.catch((thrown) => thrown)
  assert.ok(error instanceof LockLostError)
  assert.equal(error, reason, 'the error of the signal')
  // throwing the reason of the signal is the same
  const stopped = lock.using(async (signal) => {
    await at.server.send('DEL', lock.name)
    await once(signal, 'abort')
    signal.throwIfAborted()
  })
  const again = await stopped.catch((thrown) => thrown)
  assert.ok(again instanceof LockLostError)
  assert.equal(again.cause, undefined)
})

test('a body that releases by itself', async () => {
  const lock = connect().lock(fresh())
  assert.equal(
    await lock.using(async (_, lease) => {
      await lease.release()
      return 1
    }),
    1,
  )
})

test('a nested acquire of the same reentrant lock enters again', async () => {
  const client = connect()
  const name = fresh()
  const counts = []
  await client.reentrantLock(name).using(async (_, outer) => {
    counts.push(outer.holdCount)
    await client.reentrantLock(name).using(async (_, inner) => {
      counts.push(inner.holdCount)
      assert.equal(inner.fencingToken, outer.fencingToken)
      // also through timers, and by other ways of acquiring
      await pause(1)
      const third = await client.reentrantLock(name).acquire({ timeout: 0 })
      counts.push(third.holdCount)
      const fourth = await client.reentrantLock(Buffer.from(name)).tryAcquire()
      counts.push(fourth.holdCount)
      await fourth.release()
      await third.release()
    })
    counts.push(outer.holdCount)
    assert.equal(outer.held, true)
  })
  assert.deepEqual(counts, [1, 2, 3, 4, 1])
  assert.equal(await at.server.send('EXISTS', name), 0)
})

test('concurrent branches, other names, other clients and plain locks do not re-enter', async () => {
  const client = connect()
  const name = fresh()
  let entered = false
  const done = client.reentrantLock(name).using(async () => {
    entered = true
    assert.equal(await client.reentrantLock(fresh()).using(async (_, lease) => lease.holdCount), 1)
    assert.equal(await connect().reentrantLock(name).tryAcquire(), null, 'another client')
    const other = fresh()
    const first = await client.reentrantLock(other).acquire()
    assert.equal(await client.reentrantLock(other).tryAcquire(), null, 'another name has its own owner')
    await first.release()
    const plain = fresh()
    await client.lock(plain).using(async () => assert.equal(await client.lock(plain).tryAcquire(), null))
    await pause(30)
  })
  await until(() => entered)
  assert.equal(await client.reentrantLock(name).tryAcquire(), null, 'beside the body')
  let inside = 0
  const branch = () =>
    client.reentrantLock(name).using(async (_, lease) => {
      inside += 1
      assert.equal(inside, 1)
      assert.equal(lease.holdCount, 1)
      await pause(2)
      inside -= 1
    })
  await Promise.all([done, branch(), branch(), branch()])
})

test('two scopes on one name nest, in any order of others', async () => {
  const client = connect()
  const [a, b] = [fresh(), fresh()]
  const enter = (name, body) => client.reentrantLock(name).using(body)
  await enter(a, () => enter(b, () => enter(a, (_, lease) => assert.equal(lease.holdCount, 2))))
})

test('what a body left running is no part of it any more', async () => {
  const client = connect()
  const name = fresh()
  let late
  await client.reentrantLock(name).using(async () => {
    late = pause(5).then(async () => {
      const first = await client.reentrantLock(name).acquire()
      assert.equal(await client.reentrantLock(name).tryAcquire(), null)
      await first.release()
    })
  })
  await late
})

test('an explicit owner', async () => {
  const client = connect()
  const name = fresh()
  const owner = new Owner()
  const first = await client.reentrantLock(name, { owner }).acquire()
  const second = await client.reentrantLock(name, { owner }).acquire()
  assert.equal(second.holdCount, 2)
  assert.equal(await client.reentrantLock(name, { owner: new Owner() }).tryAcquire(), null)
  assert.equal(await client.reentrantLock(name, { owner: owner.id }).tryAcquire(), null, 'a name is no made owner')
  assert.equal(await client.reentrantLock(name).tryAcquire(), null)
  await second.release()
  assert.equal(first.held, true)
  await first.release()
  // inside using it is the owner of nested acquires too
  await client.reentrantLock(name, { owner: 'worker-7' }).using(async () => {
    const inner = await client.reentrantLock(name).acquire()
    assert.equal(inner.holdCount, 2)
    const named = await client.reentrantLock(name, { owner: 'worker-7' }).acquire()
    assert.equal(named.holdCount, 3)
    await named.release()
    await inner.release()
  })
})

test("the caller's own storage is untouched", async () => {
  const storage = new AsyncLocalStorage()
  const client = connect()
  await storage.run({ request: 1 }, async () => {
    const store = storage.getStore()
    await client.reentrantLock(fresh()).using(async () => {
      assert.equal(storage.getStore(), store)
      await pause(1)
      assert.equal(storage.getStore(), store)
      storage.enterWith({ request: 2 })
      assert.deepEqual(storage.getStore(), { request: 2 })
    })
    await client.lock(fresh()).using(() => assert.ok(storage.getStore()))
    const lease = await client.lock(fresh()).acquire()
    assert.ok(storage.getStore())
    await lease.release()
  })
  assert.equal(storage.getStore(), undefined)
})
