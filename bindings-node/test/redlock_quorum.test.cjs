// onelock/redlock and the package redlock on three independent servers: the same tests for both, and both together.
const assert = require('node:assert/strict')
const nodeTest = require('node:test')
const Redis = require('ioredis')
const ours = require('onelock/redlock')
const theirs = require('redlock')
const programs = require('./support/programs.cjs')
const { start, until } = require('./support/server.cjs')

/** A test that hangs is named. */
const test = (name, act) => nodeTest(name, { timeout: 60_000 }, act)

const open = []
const servers = []
nodeTest.before(async () => {
  servers.push(...(await Promise.all([start(), start(), start()])))
})
nodeTest.after(async () => {
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
const holders = async (name, these = servers) => {
  const found = await Promise.all(these.map((server) => server.send('GET', name)))
  return found.filter((value) => value !== null)
}
const caught = (promise) =>
  promise.then(
    () => assert.fail('it did not fail'),
    (error) => error,
  )

/** Another process, which has a Redlock of this library and `redis`, a connection to the first server. */
const another = (library, source) => {
  const found = (name) => JSON.stringify(require.resolve(name))
  const given = JSON.stringify(settings(library, { retryCount: -1, retryDelay: 20, retryJitter: 15 }))
  const text = `
    const Redis = require(${found('ioredis')})
    const { default: Redlock } = require(${found(library === ours ? 'onelock/redlock' : 'redlock')})
    const connections = ${JSON.stringify(servers.map(({ port }) => port))}.map((port) => new Redis(port, '127.0.0.1'))
    const [redis] = connections
    const redlock = new Redlock(connections, ${given})
    redlock.on('error', () => {})
    const work = async () => { ${source} }
    work().then(() => process.exit(0))`
  // they take the lock from each other by chance, so how long it takes is chance, too
  return programs.start(undefined, text, { loaded: false, limit: 50_000 })
}

/** Three servers of their own, for what kills one of them. */
const apart = async (act) => {
  const those = await Promise.all([start(), start(), start()])
  try {
    await act(those)
  } finally {
    await Promise.all(those.map((server) => server.kill()))
  }
}

/** A lock that stands on all of these servers: one to which there is no connection yet is not waited for. */
const everywhere = async (redlock, name, duration, these) => {
  for (let left = 1000; left > 0; left -= 1) {
    const lock = await redlock.acquire([name], duration)
    if ((await holders(name, these)).length === these.length) return lock
    await lock.release()
  }
  assert.fail('the lock never came to stand on all servers')
}

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
    const redlock = new Redlock(clients(), settings(library, { retryCount: 10, retryDelay: 20, retryJitter: 1 }))
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
    const redlock = new Redlock(clients(), settings(library, { automaticExtensionThreshold: 1000, retryCount: 0 }))
    redlock.on('error', () => {})
    const name = fresh()
    await redlock.using([name], 2000, async (signal) => {
      const end = Date.now() + 3000
      await until(async () => {
        assert.ok((await holders(name)).length >= 2)
        return Date.now() > end
      })
      assert.equal(signal.aborted, false)
    })
    const lost = fresh()
    const error = await caught(
      redlock.using([lost], 2000, async (signal) => {
        for (const server of servers.slice(0, 2)) await server.send('SET', lost, 'foreign', 'PX', 60_000)
        await until(() => signal.aborted)
        throw signal.error
      }),
    )
    assert.ok(error instanceof ExecutionError)
  })

  test(`${label}: an expired lock can neither be extended nor released, and does not harm the next one`, async () => {
    const redlock = new Redlock(clients(), settings(library, { retryCount: 0 }))
    redlock.on('error', () => {})
    const name = fresh()
    const lock = await redlock.acquire([name], 200)
    await until(async () => (await holders(name)).length === 0 && Date.now() > lock.expiration, 'the end of the lock')
    const extended = await caught(lock.extend(5000))
    assert.ok(extended instanceof ExecutionError)
    assert.equal(extended.message, 'Cannot extend an already-expired lock.')
    assert.deepEqual(extended.attempts, [])
    assert.deepEqual(await holders(name), [])
    const next = await redlock.acquire([name], 30_000)
    const before = await holders(name)
    assert.ok(before.length >= 2, String(before))
    const released = await caught(lock.release())
    assert.ok(released instanceof ExecutionError)
    assert.match(released.message, /unable to achieve a quorum/)
    assert.equal(lock.expiration, 0)
    const after = await holders(name)
    assert.ok(after.length >= 2, String(after))
    assert.deepEqual(new Set(after), new Set(before))
    await next.release()
  })

  test(`${label}: extend with one of three servers away`, async () => {
    await apart(async (those) => {
      const redlock = new Redlock(clients(those), settings(library, { retryCount: 0 }))
      redlock.on('error', () => {})
      const name = fresh()
      const lock = await everywhere(redlock, name, 5000, those)
      const [gone, ...left] = those
      await gone.kill()
      const longer = await lock.extend(60_000)
      for (const server of left) assert.ok((await server.send('PTTL', name)) > 30_000)
      assert.ok(longer.expiration > Date.now() + 30_000)
      await longer.release()
      await until(async () => (await holders(name, left)).length === 0, 'the end of the hold')
    })
  })

  test(`${label}: using with one of three servers away`, async () => {
    await apart(async (those) => {
      const given = { automaticExtensionThreshold: 1500, retryCount: 2, retryDelay: 20, retryJitter: 1 }
      const redlock = new Redlock(clients(those), settings(library, given))
      redlock.on('error', () => {})
      const name = fresh()
      const [gone, ...left] = those
      await (await everywhere(redlock, name, 1000, those)).release()
      // a release says that a majority has it: what the third still has would refuse the next acquire there
      await until(async () => (await holders(name, those)).length === 0, 'the end of the first hold')
      const value = await redlock.using([name], 3000, async (signal) => {
        await until(async () => (await holders(name, those)).length === 3, 'the hold on all servers')
        await gone.kill()
        // beyond the end of what was acquired
        const end = Date.now() + 4000
        await until(async () => {
          assert.equal((await holders(name, left)).length, 2)
          assert.equal(signal.aborted, false)
          return Date.now() > end
        })
        return 7
      })
      assert.equal(value, 7)
      await until(async () => (await holders(name, left)).length === 0, 'the end of the hold')
    })
  })

  test(`${label}: what another process holds is refused, and free when that process was killed and its time is over`, async () => {
    const name = fresh()
    const other = another(library, `await redlock.acquire(['${name}'], 3000); say('held'); await new Promise(() => {})`)
    await until(() => other.out === 'held\n', 'the other process to hold it')
    const redlock = new Redlock(clients(), settings(library, { retryDelay: 20, retryJitter: 15 }))
    redlock.on('error', () => {})
    assert.ok((await caught(redlock.acquire([name], 1000, { retryCount: 0 }))) instanceof ExecutionError)
    // on the third server, if the other process got only two, the refused one may stand for a moment
    await until(async () => new Set(await holders(name)).size === 1, 'the vote of the refused one to be undone')
    const [foreign] = await holders(name)
    other.child.kill('SIGKILL')
    assert.equal((await other.ended).signal, 'SIGKILL')
    // nobody released it
    assert.ok((await holders(name)).filter((value) => value === foreign).length >= 2)
    const lock = await redlock.acquire([name], 10_000, { retryCount: -1 })
    const own = await holders(name)
    assert.ok(own.length >= 2 && own.every((value) => value !== foreign), String(own))
    await lock.release()
  })
}

test('two processes count to the same number, with every pair of packages', async () => {
  for (const pair of [
    [ours, ours],
    [ours, theirs],
    [theirs, theirs],
  ]) {
    const [name, counter] = [fresh(), fresh()]
    // who holds it goes on when the other one asks for it too, or has ended
    const source = (own, other) => `
      const tell = (what) => redis.set('${counter}:${own}', what)
      for (let round = 0; round < 20; round += 1) {
        await tell('asks')
        const lock = await redlock.acquire(['${name}'], 10000)
        let seen
        while (!['asks', 'ended'].includes((seen = await redis.get('${counter}:${other}')))) await pause(1)
        if (seen === 'asks') await redis.incr('${counter}:contested')
        const value = Number(await redis.get('${counter}'))
        await pause(1)
        await redis.set('${counter}', value + 1)
        await tell('rests')
        await lock.release()
      }
      await tell('ended')`
    const [one, two] = pair
    const ended = await Promise.all([
      another(one, source('one', 'two')).ended,
      another(two, source('two', 'one')).ended,
    ])
    const labels = pair.map((library) => (library === ours ? 'ours' : 'theirs'))
    const outcomes = ended.map(({ code, err }, index) => ({ label: labels[index], code, err }))
    assert.deepEqual(
      outcomes,
      labels.map((label) => ({ label, code: 0, err: '' })),
    )
    assert.equal(await servers[0].send('GET', counter), '40')
    // all rounds at least of the one that ended first
    const contested = Number(await servers[0].send('GET', `${counter}:contested`))
    assert.ok(contested >= 20, String(contested))
  }
})

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
