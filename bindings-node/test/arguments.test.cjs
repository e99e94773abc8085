// What is wrong is refused before any I/O, in words that name it.
const assert = require('node:assert/strict')
const net = require('node:net')
const test = require('node:test')
const { Client, InvalidArgumentError, Owner } = require('onelock')

const client = new Client('memory://')

const refused = (act, words) => {
  const check = (error) => {
    assert.ok(error instanceof InvalidArgumentError, String(error))
    assert.match(error.message, words)
    return true
  }
  let promise
  try {
    promise = act()
  } catch (error) {
    return check(error)
  }
  return assert.rejects(promise, check)
}

test('addresses and options of clients', () => {
  refused(() => new Client('localhost'), /scheme/)
  refused(() => new Client(7), /address must be a string .*not number/)
  refused(() => new Client(null), /address must be a string/)
  refused(() => new Client('memory://', { tll: 5 }), /no option "tll"; there are: ttl, /)
  refused(() => new Client('memory://', { toString: 5 }), /no option "toString"/)
  refused(() => new Client('memory://', 5), /options must be an object, not 5/)
  refused(() => new Client('memory://', { ttl: 'long' }), /ttl must be a number of milliseconds, not "long"/)
  refused(() => new Client('memory://', { ttl: -1 }), /ttl must be a finite number of milliseconds, 0 or more, not -1/)
  refused(() => new Client('memory://', { ttl: Number.NaN }), /ttl must be .* not NaN/)
  refused(() => new Client('memory://', { ttl: Number.POSITIVE_INFINITY }), /ttl must be .* not Infinity/)
  refused(() => new Client('memory://', { ttl: 5 }), /ttl/)
  refused(() => new Client('memory://', { ttl: 1e15 }), /ttl/)
  refused(() => new Client('memory://', { autoRenew: 1 }), /autoRenew must be true or false, not 1/)
  refused(() => new Client('memory://', { label: 5n }), /label must be a string, not 5n/)
  refused(() => new Client('memory://', { label: 'x'.repeat(200) }), /label must be at most 128 bytes/)
  refused(() => new Client('memory://', { prefix: 'x'.repeat(600) }), /prefix has 600 bytes/)
  refused(() => new Client('memory://', { prefix: {} }), /prefix must be a string or a Uint8Array, not object/)
  refused(() => new Client('memory://', { driftFactor: 2 }), /drift_factor/)
  refused(() => new Client('memory://', { minFencingGrade: 'strict' }), /minFencingGrade must be 'None', /)
  refused(() => new Client('memory://', { notify: 'loud' }), /notify must be 'auto', 'classic', 'sharded' or 'both'/)
  refused(() => new Client('memory://', { minReplicas: 1.5 }), /minReplicas must be a whole number, 0 or more, not 1.5/)
  refused(() => new Client('memory://', { minReplicas: -1 }), /minReplicas must be a whole number, 0 or more, not -1/)
  refused(() => new Client('memory://', { sentinelPassword: 12345 }), /sentinelPassword must be a string, not number /)
  refused(() => new Client('memory://', { certFile: 'x' }), /certFile and keyFile belong together/)
  refused(() => new Client('memory://', { fencing: false, minFencingGrade: 'Strict' }), /fencing is off/)
  refused(() => new Client(['memory://', 5]), /address must be a string/)
  refused(() => Client.connect('memory://', { x: 1 }), /no option "x"/)
})

test('names that a cluster cannot keep in one place are refused without a connection', async () => {
  let connections = 0
  const listening = net.createServer((socket) => {
    connections += 1
    socket.destroy()
  })
  await new Promise((resolve) => listening.listen(0, '127.0.0.1', resolve))
  const { port } = listening.address()
  const cluster = new Client(`redis+cluster://127.0.0.1:${port}`, { unreachableLimit: 100 })
  try {
    for (const name of ['orders:{42', 'orders:42}', '{}:42', '}{', Buffer.from('{orders')]) {
      const lock = cluster.lock(name)
      for (const act of [() => lock.acquire(), () => lock.tryAcquire(), () => lock.acquire({ timeout: 60_000 })]) {
        await refused(act, /in a cluster the braces of a name must enclose something, as in \{orders\}:42/)
      }
      await refused(
        () => cluster.reentrantLock(name, { owner: new Owner() }).acquire(),
        /write the name without braces/,
      )
    }
    assert.equal(connections, 0)
    // a whole pair is none of these: there it is tried
    await assert.rejects(cluster.lock('{orders}:42').acquire(), { code: 'ERR_ONELOCK_UNAVAILABLE' })
    assert.ok(connections > 0)
  } finally {
    await cluster.close()
    listening.close()
  }
})

test('a password is never shown', () => {
  for (const address of ['redis://u:hunter2@h:port', 'http://u:hunter2@h']) {
    try {
      new Client(address)
      assert.fail('it was accepted')
    } catch (error) {
      assert.ok(!JSON.stringify([error.message, error.stack, error]).includes('hunter2'))
    }
  }
})

test('names', async () => {
  refused(() => client.lock(7), /name must be a string or a Uint8Array, not 7/)
  refused(() => client.lock(), /name must be a string/)
  refused(() => client.lock('\ud800'), /surrogate/)
  await refused(() => client.lock('').acquire(), /the name is empty/)
  await refused(() => client.lock('x'.repeat(513)).acquire(), /name has 513 bytes/)
  await refused(() => client.lock('é'.repeat(300)).tryAcquire(), /name has 600 bytes/)
  await refused(() => client.inspect(''), /the name is empty/)
  await refused(() => client.forceRelease(5), /name must be/)
})

test('options of locks', async () => {
  refused(() => client.lock('x', { tll: 5 }), /describe a lock "x": there is no option "tll"; there are: ttl, /)
  refused(() => client.lock('x', { driftFactor: 0.1 }), /no option "driftFactor"/)
  refused(() => client.lock('x', { ttl: '5' }), /ttl must be a number/)
  refused(() => client.reentrantLock('x', { owner: 5 }), /owner must be a string or an Owner/)
  await refused(() => client.lock('x', { ttl: 9 }).acquire(), /ttl/)
  await refused(() => client.lock('x', { owner: new Owner() }).acquire(), /owner is for reentrant locks/)
  await refused(() => client.lock('x', { ttl: 100, minHold: 101 }).acquire(), /min_hold/)
  await refused(() => client.lock('x', { maxHold: 0 }).acquire(), /max_hold/)
  await refused(() => client.lock('x', { minValidity: 40_000 }).acquire(), /min_validity/)
})

test('options of waiting, and other arguments', async () => {
  const lock = client.lock('y')
  await refused(() => lock.acquire({ timeout: -1 }), /acquire "y": timeout must be .* not -1/)
  await refused(() => lock.acquire({ timeout: Number.NaN }), /timeout must be .* not NaN/)
  await refused(() => lock.acquire({ timeout: '5' }), /timeout must be a number of milliseconds, not "5"/)
  await refused(() => lock.acquire({ timeout: 1e15 }), /one year/)
  await refused(() => lock.acquire({ timout: 5 }), /no option "timout"; there are: timeout, signal/)
  await refused(() => lock.acquire({ signal: {} }), /signal must be an AbortSignal/)
  await refused(() => lock.acquire(5), /options must be an object such as \{ timeout: 5000 \}, not 5/)
  await refused(() => lock.tryAcquire({ timeout: 5 }), /it takes no timeout/)
  await refused(() => lock.using(), /body must be a function/)
  await refused(() => lock.using({ timeout: 5 }), /body must be a function/)
  const lease = await lock.acquire()
  for (const ttl of [0, -1, 9, Number.NaN, '5', undefined, 1e15]) await refused(() => lease.extend(ttl), /extend.*ttl/)
  assert.equal(lease.held, true)
  await lease.release()
})

test('arguments in the wrong order are refused, not left out', async () => {
  const client = new Client('memory://')
  const body = async () => assert.fail('it ran')
  await assert.rejects(client.lock('x').using(body, { timeout: 0 }), /lock\.using\(options, body\)/)
  assert.throws(() => new Client({ ttl: 1000 }, 'memory://'), /the address comes first/)
  const redis = new (require('ioredis'))({ lazyConnect: true })
  const redlock = new (require('onelock/redlock').Redlock)([redis])
  await assert.rejects(redlock.using(['x'], 1000, body, { retryCount: 0 }), /settings come before the routine/)
  redis.disconnect()
})

test('permits', async () => {
  for (const wrong of [4, true, null, 'four', () => 4]) {
    await refused(() => client.semaphore('x', wrong), /options must be an object such as \{ permits: 4 \}/)
  }
  const semaphore = client.semaphore('x', { permits: 4 })
  for (const [wrong, words] of [
    [-1, /not -1/],
    [1.5, /not 1\.5/],
    [Number.NaN, /not NaN/],
    [2 ** 40, /not 1099511627776/],
    [true, /not true/],
    ['1', /not "1"/],
    [null, /not null/],
    [0, /not 0/],
    [1025, /1025/],
  ]) {
    const described = () => client.semaphore('x', { permits: wrong }).acquire({ timeout: 0 })
    await refused(described, words)
    await refused(() => semaphore.acquire({ permits: wrong }), words)
    await refused(() => semaphore.tryAcquire({ permits: wrong }), words)
    await refused(() => semaphore.using({ permits: wrong }, () => 1), words)
    await refused(() => semaphore.setPermits(wrong), words)
  }
})
