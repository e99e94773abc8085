// onelock/redlock beside the package redlock itself: the same tests for both, and what is ours alone.
const assert = require('node:assert/strict')
const { spawnSync } = require('node:child_process')
const test = require('node:test')
const Redis = require('ioredis')
const ours = require('onelock/redlock')
const theirs = require('redlock')
const { UnsupportedError, InvalidArgumentError } = require('onelock')
const { forTests, until } = require('./support/server.cjs')

const open = []
test.after(() => {
  for (const redis of open) redis.disconnect()
})
const at = forTests(test)

let names = 0
const fresh = () => `redlock:${++names}`

function connect(options = {}) {
  const redis = new Redis({ port: at.server.port, host: '127.0.0.1', ...options })
  open.push(redis)
  return redis
}

const caught = (promise) =>
  promise.then(
    () => assert.fail('it did not fail'),
    (error) => error,
  )
const exists = (name) => at.server.send('EXISTS', name)

for (const [label, library] of Object.entries({ theirs, ours })) {
  const { default: Redlock, ExecutionError, ResourceLockedError, Lock } = library

  test(`${label}: several resources, all or none`, async () => {
    const redlock = new Redlock([connect()], { retryCount: 0 })
    const names = [fresh(), fresh()]
    const lock = await redlock.acquire(names, 2000)
    assert.deepEqual(lock.resources, names)
    assert.deepEqual(await Promise.all(names.map(exists)), [1, 1])
    const refused = await caught(redlock.acquire([fresh(), names[1]], 2000))
    assert.ok(refused instanceof ExecutionError)
    const longer = await lock.extend(5000)
    for (const name of names) assert.ok((await at.server.send('PTTL', name)) > 3000)
    await longer.release()
    assert.deepEqual(await Promise.all(names.map(exists)), [0, 0])
    const value = await redlock.using(names, 2000, async () => {
      assert.deepEqual(await Promise.all(names.map(exists)), [1, 1])
      return 7
    })
    assert.equal(value, 7)
    assert.deepEqual(await Promise.all(names.map(exists)), [0, 0])
  })

  test(`${label}: acquire, extend, release`, async () => {
    const redlock = new Redlock([connect()], { retryCount: 0 })
    const name = fresh()
    const before = Date.now()
    const lock = await redlock.acquire([name], 2000)
    assert.ok(lock instanceof Lock)
    assert.equal(lock.redlock, redlock)
    assert.deepEqual(lock.resources, [name])
    assert.equal(typeof lock.value, 'string')
    assert.ok(lock.expiration > before && lock.expiration <= Date.now() + 2000 - 21, String(lock.expiration - before))
    const ttl = await at.server.send('PTTL', name)
    assert.ok(ttl > 1000 && ttl <= 2000, String(ttl))
    const [stats] = await Promise.all(lock.attempts)
    assert.equal(stats.membershipSize, 1)
    assert.equal(stats.quorumSize, 1)
    assert.equal(stats.votesFor.size, 1)
    assert.equal(stats.votesAgainst.size, 0)

    const longer = await lock.extend(5000)
    assert.ok(longer instanceof Lock)
    assert.notEqual(longer, lock)
    assert.equal(lock.expiration, 0)
    assert.equal(longer.value, lock.value)
    assert.ok(longer.expiration > before + 2500)
    assert.ok((await at.server.send('PTTL', name)) > 3000)
    const { attempts } = await longer.release()
    assert.equal((await attempts[0]).votesFor.size, 1)
    assert.equal(longer.expiration, 0)
    assert.equal(await exists(name), 0)
  })

  test(`${label}: a lock that is taken`, async () => {
    const redlock = new Redlock([connect()], { retryCount: 0 })
    const heard = []
    redlock.on('error', (error) => heard.push(error))
    const name = fresh()
    const lock = await redlock.acquire([name], 5000)
    const error = await caught(redlock.acquire([name], 5000))
    assert.ok(error instanceof ExecutionError)
    assert.equal(error.name, 'ExecutionError')
    assert.equal(error.message, 'The operation was unable to achieve a quorum during its retry window.')
    const [stats] = await Promise.all(error.attempts)
    assert.equal(stats.votesFor.size, 0)
    const [[client, vote]] = [...stats.votesAgainst]
    assert.ok(redlock.clients.has(client))
    assert.ok(vote instanceof ResourceLockedError)
    assert.equal(vote.message, 'The operation was applied to: 0 of the 1 requested resources.')
    assert.ok(heard.some((each) => each instanceof ResourceLockedError))
    await lock.release()
  })

  test(`${label}: waits as long as the retries last, and gets what is freed`, async () => {
    const redlock = new Redlock([connect()])
    const name = fresh()
    const lock = await redlock.acquire([name], 10_000)
    const settings = { retryCount: 2, retryDelay: 50, retryJitter: 10 }
    const begun = Date.now()
    assert.ok((await caught(redlock.acquire([name], 1000, settings))) instanceof ExecutionError)
    assert.ok(Date.now() - begun >= 75)
    const waiting = redlock.acquire([name], 1000, { retryCount: -1, retryDelay: 20, retryJitter: 0 })
    await lock.release()
    await (await waiting).release()
  })

  test(`${label}: releasing and extending what is not held any more`, async () => {
    const redlock = new Redlock([connect()], { retryCount: 0 })
    const name = fresh()
    const lock = await redlock.acquire([name], 5000)
    await at.server.send('SET', name, 'foreign')
    assert.ok((await caught(lock.extend(1000))) instanceof ExecutionError)
    assert.ok((await caught(lock.release())) instanceof ExecutionError)
    assert.equal(await at.server.send('GET', name), 'foreign')
    const again = await redlock.acquire([fresh()], 1000)
    await again.release()
    assert.ok((await caught(again.release())) instanceof ExecutionError)
    const expired = await caught(again.extend(1000))
    assert.ok(expired instanceof ExecutionError)
    assert.equal(expired.message, 'Cannot extend an already-expired lock.')
    assert.deepEqual(expired.attempts, [])
  })

  test(`${label}: using returns what the routine returns, and passes its errors on`, async () => {
    const redlock = new Redlock([connect()], { automaticExtensionThreshold: 100 })
    const name = fresh()
    const value = await redlock.using([name], 1000, async (signal) => {
      assert.ok(signal instanceof AbortSignal)
      assert.equal(signal.aborted, false)
      assert.equal(signal.error, undefined)
      assert.equal(await exists(name), 1)
      return 7
    })
    assert.equal(value, 7)
    assert.equal(await exists(name), 0)
    const mine = new Error('mine')
    const routine = async () => {
      throw mine
    }
    assert.equal(await caught(redlock.using([name], 1000, { retryCount: 1 }, routine)), mine)
    assert.equal(await exists(name), 0)
  })

  test(`${label}: using extends`, async () => {
    const redlock = new Redlock([connect()], { automaticExtensionThreshold: 1000 })
    const name = fresh()
    await redlock.using([name], 2000, async (signal) => {
      const end = Date.now() + 3000
      await until(async () => {
        assert.equal(await exists(name), 1)
        return Date.now() > end
      })
      assert.equal(signal.aborted, false)
    })
    assert.equal(await exists(name), 0)
  })

  test(`${label}: using aborts the signal when the lock is lost`, async () => {
    const redlock = new Redlock([connect()], { automaticExtensionThreshold: 200, retryCount: 0 })
    const name = fresh()
    let told
    const error = await caught(
      redlock.using([name], 600, async (signal) => {
        await at.server.send('SET', name, 'foreign')
        await until(() => signal.aborted)
        assert.ok(signal.error instanceof ExecutionError)
        told = signal.error
        throw signal.error
      }),
    )
    assert.ok(error instanceof ExecutionError)
    if (library === ours) assert.equal(error, told)
    assert.equal(await at.server.send('GET', name), 'foreign')
    await assert.rejects(
      redlock.using([fresh()], 600, async (signal) => {
        await at.server.send('FLUSHALL')
        await until(() => signal.aborted)
      }),
      ExecutionError,
    )
  })

  test(`${label}: what is refused before anything is sent`, async () => {
    assert.throws(() => new Redlock([]), /at least one redis client/)
    const redlock = new Redlock([connect()])
    const integer = /Duration must be an integer value in milliseconds/
    await assert.rejects(redlock.acquire(['x'], 10.5), integer)
    await assert.rejects(
      redlock.using(['x'], 10.5, async () => {}),
      integer,
    )
    await assert.rejects(
      redlock.using(['x'], 500, async () => {}),
      /at least 100ms greater/,
    )
    await assert.rejects(redlock.using(['x'], 5000, {}), /routine/)
    assert.equal(await exists('x'), 0)
  })

  test(`${label}: a lock that nobody keeps lasts until it expires, beyond the end of the process`, async () => {
    const name = fresh()
    const package_ = library === ours ? 'onelock/redlock' : 'redlock'
    const program = `
      const Redis = require('ioredis')
      const { default: Redlock } = require('${package_}')
      const redlock = new Redlock([new Redis(${at.server.port}, '127.0.0.1')])
      redlock.acquire(['${name}'], 20000).then(async () => {
        for (let round = 0; round < 20; round += 1) { gc(); await new Promise(setImmediate) }
        process.exit(0)
      })`
    const ended = spawnSync(process.execPath, ['--expose-gc', '-e', program], { cwd: __dirname, timeout: 20_000 })
    assert.equal(String(ended.stderr), '')
    assert.equal(ended.status, 0)
    assert.ok((await at.server.send('PTTL', name)) > 10_000)
  })

  test(`${label}: quit ends the clients, and not the locks`, async () => {
    const redis = connect()
    const redlock = new Redlock([redis])
    const name = fresh()
    await redlock.acquire([name], 20_000)
    await redlock.quit()
    await until(() => redis.status === 'end')
    assert.ok((await at.server.send('PTTL', name)) > 10_000)
  })

  test(`${label}: the clients' database and key prefix`, async () => {
    const redis = connect({ db: 3, keyPrefix: 'app:' })
    const redlock = new Redlock([redis])
    const name = fresh()
    const lock = await redlock.acquire([name], 5000)
    assert.equal(await redis.exists(name), 1)
    const other = connect({ db: 3 })
    assert.equal(await other.exists(`app:${name}`), 1)
    await lock.release()
  })
}

test('ES modules and CommonJS share one of everything', async () => {
  const esm = await import('onelock/redlock')
  for (const [name, value] of Object.entries(ours)) assert.equal(esm[name], value, name)
  assert.equal(esm.default, ours.Redlock)
})

test('both packages respect each other', async () => {
  for (const [first, second] of [
    [ours, theirs],
    [theirs, ours],
  ]) {
    const name = fresh()
    const lock = await new first.default([connect()]).acquire([name], 10_000)
    const other = new second.default([connect()], { retryDelay: 50 })
    assert.ok((await caught(other.acquire([name], 1000, { retryCount: 1 }))) instanceof second.ExecutionError)
    const waiting = other.acquire([name], 1000, { retryCount: 100 })
    await lock.release()
    await (await waiting).release()
  }
})

test('ours: an expired lock is free for others, and says so', async () => {
  const redlock = new ours.default([connect()], { retryCount: 50 })
  const name = fresh()
  const first = await redlock.acquire([name], 200)
  assert.ok(first.lease.held)
  const second = await redlock.acquire([name], 5000)
  assert.equal(first.lease.held, false)
  assert.ok(Number(second.value) > Number(first.value))
  assert.equal(second.lease.fencingToken, Number(second.value))
  await assert.rejects(first.release(), ours.ExecutionError)
  await second.release()
})

test('ours: a routine that ends well after the loss makes using fail with the reason of the signal', async () => {
  const redlock = new ours.default([connect()], { automaticExtensionThreshold: 100 })
  let told
  const error = await caught(
    redlock.using([fresh()], 600, async (signal) => {
      await at.server.send('FLUSHALL')
      await until(() => signal.aborted)
      told = signal.error
    }),
  )
  assert.equal(error, told)
  assert.equal(error.cause.code, 'ERR_ONELOCK_LOST')
})

test('ours: a server that is away', async () => {
  const redis = new Redis({ port: 1, host: '127.0.0.1', lazyConnect: true })
  const redlock = new ours.default([redis], { retryCount: 1, retryDelay: 20, retryJitter: 0 })
  const error = await caught(redlock.acquire(['x'], 1000))
  assert.ok(error instanceof ours.ExecutionError)
  assert.equal(error.cause.code, 'ERR_ONELOCK_UNAVAILABLE')
  const [stats] = await Promise.all(error.attempts)
  assert.deepEqual([...stats.votesAgainst.values()], [error.cause])
})

test('ours: of several resources each has a token, and one loss is that of the whole', async () => {
  const redlock = new ours.default([connect()], { retryCount: 0 })
  const names = [fresh(), fresh()]
  const lock = await redlock.acquire(names, 5000)
  assert.equal(lock.value, names.map((name) => lock.lease.fencingTokens.get(name)).join(','))
  await at.server.send('DEL', names[1])
  const error = await caught(lock.extend(6000))
  assert.ok(error instanceof ours.ExecutionError)
  const [stats] = await Promise.all(error.attempts)
  assert.match([...stats.votesAgainst.values()][0].message, /0 of the 2 requested resources/)
  await caught(lock.release())
  await until(async () => (await exists(names[0])) === 0)
})

test('ours: what cannot be taken over says so', async () => {
  const Redlock = ours.default
  const redlock = new Redlock([connect()])
  await assert.rejects(redlock.acquire([], 1000), InvalidArgumentError)
  await assert.rejects(redlock.acquire('a', 1000), InvalidArgumentError)
  await assert.rejects(redlock.release({}), InvalidArgumentError)
  await assert.rejects(redlock.acquire(['a'], 1000, { retries: 1 }), InvalidArgumentError)
  assert.throws(() => new Redlock([connect()], {}, { acquireScript: '' }), UnsupportedError)
  assert.throws(() => new Redlock([{}]), InvalidArgumentError)
  assert.throws(() => new Redlock([connect(), connect({ keyPrefix: 'a' })]), InvalidArgumentError)
  const lazy = (options) => new Redis({ lazyConnect: true, ...options })
  assert.throws(() => new Redlock([lazy({ tls: { ca: 'PEM' } })]), /client: { caFile }/)
  assert.throws(() => new Redlock([lazy({ tls: { servername: 'other' } })]), UnsupportedError)
})

test('ours: the address that an ioredis object has', () => {
  const { placeOf } = require('../dist/ioredis.js')
  const lazy = (...given) => {
    const redis = new Redis(...given.slice(0, -1), { lazyConnect: true, ...given.at(-1) })
    open.push(redis)
    return redis
  }
  const address = (...given) => placeOf(lazy(...given), {}).address
  assert.equal(address({}), 'redis://localhost:6379/0')
  assert.equal(address('redis://me:p%40ss@[::1]:7000/4', {}), 'redis://me:p%40ss@[::1]:7000/4')
  assert.equal(address({ password: 'a/b', tls: {} }), 'rediss://:a%2Fb@localhost:6379/0')
  assert.equal(address({ path: '/run/a b.sock', db: 2 }), 'unix:///run/a%20b.sock?db=2')
  const sentinel = { name: 'main', sentinels: [{ host: 'h1' }, { host: 'h2', port: 1 }], sentinelPassword: 'p w' }
  assert.equal(address(sentinel), 'redis+sentinel://h1:26379,h2:1/main/0?sentinel_password=p+w')
  const nodes = [7001, 'redis://h2:7002', { host: 'h3' }]
  const cluster = new Redis.Cluster(nodes, { lazyConnect: true, keyPrefix: 'k', redisOptions: { password: 's' } })
  const place = placeOf(cluster, {})
  assert.equal(place.address, 'redis+cluster://:s@127.0.0.1:7001,h2:7002,h3:6379')
  assert.equal(place.options.prefix, 'k')
  const limits = placeOf(lazy({ connectTimeout: 500, commandTimeout: 400, tls: { rejectUnauthorized: false } }), {})
  assert.deepEqual({ ...limits.options }, { connectTimeout: 500, requestTimeout: 400, tlsInsecure: true })
})
