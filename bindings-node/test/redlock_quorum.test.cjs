// onelock/redlock and the package redlock on three independent servers: the same tests for both, and both together.
const assert = require('node:assert/strict')
const test = require('node:test')
const Redis = require('ioredis')
const ours = require('onelock/redlock')
const theirs = require('redlock')
const { start, until } = require('./support/server.cjs')

const open = []
const servers = []
test.before(async () => {
  servers.push(...(await Promise.all([start(), start(), start()])))
})
test.after(async () => {
  for (const redis of open) redis.disconnect()
  await Promise.all(servers.map((server) => server.kill()))
})

let names = 0
const fresh = () => `quorum:${++names}`
// an ioredis object each, which is quiet about a server that is away
const clients = (these = servers) =>
  these.map(({ port }) => {
    const redis = new Redis({ port, host: '127.0.0.1', maxRetriesPerRequest: 0, enableOfflineQueue: true })
    redis.on('error', () => {})
    open.push(redis)
    return redis
  })
const settings = (library, given) =>
  // servers that were just started would not vote yet
  library === ours ? { ...given, client: { quarantine: 0 } } : given
const holders = async (name) => {
  const found = await Promise.all(servers.map((server) => server.send('GET', name)))
  return found.filter((value) => value !== null)
}
const caught = (promise) =>
  promise.then(
    () => assert.fail('it did not fail'),
    (error) => error,
  )

for (const [label, library] of Object.entries({ theirs, ours })) {
  const { default: Redlock, ExecutionError } = library

  test(`${label}: one lock on three servers`, async () => {
    const redlock = new Redlock(clients(), settings(library, { retryCount: 0 }))
    const name = fresh()
    const lock = await redlock.acquire([name], 3000)
    // a server to which there is no connection yet is not waited for
    const held = await holders(name)
    assert.ok(held.length >= 2, String(held))
    assert.equal(new Set(held).size, 1)
    const [stats] = await Promise.all(lock.attempts)
    assert.equal(stats.membershipSize, 3)
    assert.equal(stats.quorumSize, 2)
    assert.ok((await caught(redlock.acquire([name], 1000))) instanceof ExecutionError)
    const longer = await lock.extend(9000)
    const ttls = await Promise.all(servers.map((server) => server.send('PTTL', name)))
    assert.ok(ttls.filter((ttl) => ttl > 5000).length >= 2, String(ttls))
    await longer.release()
    await until(async () => (await holders(name)).length === 0, 'the end of the hold on all servers')
  })

  test(`${label}: a majority is enough, and a minority is not`, async () => {
    const redlock = new Redlock(clients(), settings(library, { retryCount: 1, retryDelay: 20, retryJitter: 1 }))
    redlock.on('error', () => {})
    const name = fresh()
    await servers[0].send('SET', name, 'foreign', 'PX', 60_000)
    const lock = await redlock.acquire([name], 5000)
    await lock.release()
    assert.deepEqual(await holders(name), ['foreign'])
    await servers[1].send('SET', name, 'foreign', 'PX', 60_000)
    assert.ok((await caught(redlock.acquire([name], 5000))) instanceof ExecutionError)
    await until(async () => (await holders(name)).every((value) => value === 'foreign'), 'the vote to be undone')
  })

  test(`${label}: using extends on a majority, and aborts when that is lost`, async () => {
    const redlock = new Redlock(clients(), settings(library, { automaticExtensionThreshold: 200, retryCount: 0 }))
    redlock.on('error', () => {})
    const name = fresh()
    await redlock.using([name], 500, async (signal) => {
      const end = Date.now() + 1200
      await until(async () => {
        assert.ok((await holders(name)).length >= 2)
        return Date.now() > end
      })
      assert.equal(signal.aborted, false)
    })
    const lost = fresh()
    const error = await caught(
      redlock.using([lost], 600, async (signal) => {
        for (const server of servers.slice(0, 2)) await server.send('SET', lost, 'foreign', 'PX', 60_000)
        await until(() => signal.aborted)
        throw signal.error
      }),
    )
    assert.ok(error instanceof ExecutionError)
  })
}

test('both packages respect each other, and hand over', async () => {
  for (const [first, second] of [
    [ours, theirs],
    [theirs, ours],
  ]) {
    const name = fresh()
    const lock = await new first.default(clients(), settings(first, {})).acquire([name], 10_000)
    const other = new second.default(clients(), settings(second, { retryDelay: 50, retryJitter: 20 }))
    other.on('error', () => {})
    assert.ok((await caught(other.acquire([name], 1000, { retryCount: 1 }))) instanceof second.ExecutionError)
    const waiting = other.acquire([name], 1000, { retryCount: 100 })
    await lock.release()
    await (await waiting).release()
  }
})

test('both packages count to the same number', async () => {
  const [name, counter] = [fresh(), fresh()]
  const packages = [ours, theirs, ours, theirs].map((library) => {
    const redlock = new library.default(
      clients(),
      settings(library, { retryCount: -1, retryDelay: 20, retryJitter: 15 }),
    )
    redlock.on('error', () => {})
    return redlock
  })
  const work = packages.map(async (redlock) => {
    for (let round = 0; round < 10; round += 1) {
      const lock = await redlock.acquire([name], 10_000)
      const value = Number((await servers[0].send('GET', counter)) ?? 0)
      await new Promise((resolve) => setImmediate(resolve))
      await servers[0].send('SET', counter, value + 1)
      await lock.release()
    }
  })
  await Promise.all(work)
  assert.equal(await servers[0].send('GET', counter), '40')
})

test('ours: a server that dies is done without, and two are named', async () => {
  const those = await Promise.all([start(), start(), start()])
  try {
    const redlock = new ours.default(clients(those), settings(ours, { retryCount: 1, retryDelay: 20, retryJitter: 0 }))
    redlock.on('error', () => {})
    const name = fresh()
    await (await redlock.acquire([name], 5000)).release()
    await those[0].kill()
    const lock = await redlock.acquire([name], 5000)
    assert.ok(lock.lease.held)
    await lock.release()
    await those[1].kill()
    const error = await caught(redlock.acquire([name], 5000))
    assert.ok(error instanceof ours.ExecutionError)
    assert.equal(error.cause.code, 'ERR_ONELOCK_NO_QUORUM')
    assert.equal(error.cause.causes.length, 3)
    for (const { port } of those.slice(0, 2)) {
      assert.ok(error.cause.causes.some((cause) => cause.includes(String(port))))
    }
  } finally {
    await those[2].kill()
  }
})
