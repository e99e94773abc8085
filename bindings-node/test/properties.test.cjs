// Whatever is given at the boundary: it does what it should, or is refused with an error that says what was wrong.
// fast-check prints seed and path of a failure; `fc.assert(..., { seed, path })` runs it again.
const assert = require('node:assert/strict')
const { inspect } = require('node:util')
const test = require('node:test')
const fc = require('fast-check')
const {
  Client,
  FenceGate,
  InvalidArgumentError,
  LockBusyError,
  LockLostError,
  OnelockError,
  UnsupportedError,
} = require('onelock')
const { forTests } = require('./support/server.cjs')

const at = forTests(test)
const YEAR = 365 * 86_400_000

const check = (property, numRuns = 200) => fc.assert(property, { numRuns })

/** A text that has bytes in UTF-8. */
const text = (constraints) => fc.string({ unit: 'binary', ...constraints })
const bytes = (constraints) => fc.uint8Array(constraints).map((array) => Uint8Array.from(array))
const sized = (name) => Buffer.from(name).length >= 1 && Buffer.from(name).length <= 512
const names = fc.oneof(text({ maxLength: 128 }), bytes({ minLength: 1, maxLength: 512 })).filter(sized)

/** The error of a call, thrown at once or by its promise; `null` when it ended well. */
async function errorOf(call) {
  try {
    await call()
    return null
  } catch (error) {
    return error
  }
}

function refused(error, word) {
  assert.ok(error instanceof InvalidArgumentError, inspect(error))
  assert.equal(error.code, 'ERR_ONELOCK_INVALID_ARGUMENT')
  if (word !== undefined) assert.ok(error.message.includes(word), error.message)
  assert.ok(!/[\n\0]/.test(error.message), error.message)
}

test('a name is its bytes, behind the prefix', async () => {
  const prefixes = fc.oneof(text({ maxLength: 40 }), bytes({ maxLength: 40 }))
  await check(
    fc.asyncProperty(prefixes, names, async (prefix, name) => {
      const client = new Client(at.server.url, { prefix })
      const lease = await client.lock(name).acquire({ timeout: 0 })
      assert.deepEqual(lease.name, name)
      const key = Buffer.concat([Buffer.from(prefix), Buffer.from(name)])
      assert.equal(await at.server.send('EXISTS', key), 1)
      assert.equal(await client.lock(Uint8Array.from(Buffer.from(name))).tryAcquire(), null)
      assert.equal((await client.inspect(name)).fencingToken, lease.fencingToken)
      assert.equal(await lease.release(), 'released')
      assert.equal(await at.server.send('EXISTS', key), 0)
      await client.close()
    }),
    60,
  )
})

test('two names are one lock exactly when their bytes are the same', async () => {
  const client = new Client('memory://')
  await check(
    fc.asyncProperty(names, names, async (one, other) => {
      const lease = await client.lock(one).acquire({ timeout: 0 })
      const second = await client.lock(other).tryAcquire()
      assert.equal(second === null, Buffer.from(one).equals(Buffer.from(other)))
      await second?.release()
      await lease.release()
    }),
  )
  await client.close()
})

test('what is no name is refused', async () => {
  const client = new Client('memory://')
  const halves = fc
    .tuple(text(), fc.integer({ min: 0xd800, max: 0xdfff }), text())
    .map(([front, unit, back]) => front + String.fromCharCode(unit) + back)
    .filter((name) => !/[\uD800-\uDBFF][\uDC00-\uDFFF]/u.test(name) && Buffer.from(name).toString() !== name)
  const long = fc.oneof(text({ minLength: 513, maxLength: 600 }), bytes({ minLength: 513, maxLength: 600 }))
  const others = fc.anything().filter((name) => typeof name !== 'string' && !(name instanceof Uint8Array))
  await check(
    fc.asyncProperty(fc.oneof(halves, long, others, fc.constantFrom('', new Uint8Array())), async (name) => {
      refused(await errorOf(() => client.lock(name).tryAcquire()), 'name')
      refused(await errorOf(() => client.inspect(name)), 'name')
      refused(await errorOf(() => client.forceRelease(name)), 'name')
    }),
  )
  await client.close()
})

const odd = [
  0,
  -0,
  -1,
  1,
  9.999,
  10,
  10.001,
  0.1,
  Number.NaN,
  Number.POSITIVE_INFINITY,
  2 ** 31,
  2 ** 53,
  1e308,
  5e-324,
]
const numbers = fc.oneof(fc.constantFrom(...odd), fc.double(), fc.integer(), fc.double({ min: 0, max: 1e6 }))

test('a ttl from 10 ms to a year is kept, any other is refused', async () => {
  const client = new Client('memory://')
  await check(
    fc.asyncProperty(numbers, async (ttl) => {
      const before = performance.now()
      let lease
      const error = await errorOf(async () => {
        lease = await client.lock('x', { ttl, autoRenew: false }).acquire({ timeout: 0 })
      })
      if (!(ttl >= 10 && ttl <= YEAR)) {
        refused(error, 'ttl')
        return
      }
      if (ttl > 20_000) {
        assert.equal(error, null)
        const { remaining } = lease
        const took = performance.now() - before
        const longest = ttl - ttl * 0.01 - 2
        assert.ok(remaining <= longest + 0.01 && remaining >= longest - took - 0.01, `${remaining} after ${took}`)
      }
      // a short one may have ended by now
      await lease?.release()
    }),
  )
  await client.close()
})

test('a timeout is a number from 0 on, an extension like a ttl', async () => {
  const client = new Client('memory://')
  await check(
    fc.asyncProperty(fc.oneof(numbers, fc.anything()), async (ms) => {
      const error = await errorOf(async () => (await client.lock('free').acquire({ timeout: ms })).release())
      const fine = ms === undefined || ms === Number.POSITIVE_INFINITY || (Number.isFinite(ms) && ms >= 0)
      if (!fine) refused(error, 'timeout')
      else if (ms > YEAR && ms !== Number.POSITIVE_INFINITY) refused(error, 'one year')
      else assert.equal(error, null)

      const lease = await client.lock('held').acquire()
      const before = lease.remaining
      const extended = await errorOf(() => lease.extend(ms))
      if (typeof ms === 'number' && ms >= 10 && ms <= YEAR) assert.equal(extended, null)
      else refused(extended, 'ttl')
      assert.ok(lease.held)
      assert.ok(lease.remaining > before - 5_000, 'nothing is ever shortened')
      await lease.release()
    }),
  )
  await client.close()
})

const CLIENT = [
  'ttl',
  'autoRenew',
  'minHold',
  'maxHold',
  'lockDelay',
  'minValidity',
  'fencing',
  'prefix',
  'driftFactor',
  'label',
]
CLIENT.push('minFencingGrade', 'connectTimeout', 'requestTimeout', 'closeTimeout', 'unreachableLimit', 'inspectable')
CLIENT.push('tlsInsecure', 'nodeTimeout', 'quarantine', 'minReplicas', 'replicaTimeout', 'notify', 'sentinelTls')
const LOCK = ['ttl', 'autoRenew', 'minHold', 'maxHold', 'lockDelay', 'minValidity', 'fencing', 'owner']
const values = fc.oneof(numbers, fc.boolean(), fc.constantFrom('None', 'Strict', null, undefined), fc.anything())
const options = (keys) => fc.dictionary(fc.oneof(fc.constantFrom(...keys), fc.string()), values, { maxKeys: 3 })

test('options of any kind work, or are refused by name', async () => {
  await check(
    fc.asyncProperty(options(CLIENT), options(LOCK), async (forClient, forLock) => {
      let client
      const error = await errorOf(() => {
        client = new Client('memory://', forClient)
      })
      if (error !== null) {
        // what is good elsewhere, and nothing that a store in memory has
        if (error instanceof UnsupportedError) assert.ok(forClient.minReplicas > 0, inspect(error))
        else refused(error)
        client = new Client('memory://')
      }
      const keys = Object.keys(forLock)
      const unknown = keys.find((key) => !LOCK.includes(key) && key !== 'renewEvery' && forLock[key] !== undefined)
      const second = await errorOf(async () => {
        const lease = await client.reentrantLock('x', forLock).acquire({ timeout: 1000 })
        await lease.release()
      })
      if (unknown !== undefined) refused(second)
      // an option that is too strict for the others may leave nothing to grant
      else if (second !== null) assert.ok(second instanceof OnelockError, inspect(second))
      if (second !== null) assert.notEqual(second.code, 'ERR_ONELOCK_INTERNAL')
      await client.close()
    }),
    300,
  )
})

test('an address of any kind is taken or refused, and no secret is told', async () => {
  const secret = fc.stringMatching(/^[a-zA-Z0-9]{12,20}$/)
  const broken = fc.constantFrom('redis://', 'rediss://', 'valkey://', 'unix://', 'redis+cluster://', 'redlock://', '')
  const tails = fc.oneof(
    fc.constantFrom('host:port', '[::1', 'h:99999', 'h/x', '', ' h', 'h/0?db=x', '/'),
    fc.webPath(),
  )
  await check(
    fc.asyncProperty(broken, fc.string(), secret, tails, async (scheme, user, password, tail) => {
      let client
      const error = await errorOf(() => {
        client = new Client(`${scheme}${user}:${password}@${tail}`)
      })
      if (error === null) {
        assert.ok(!inspect(client, { depth: 9 }).includes(password))
        return
      }
      assert.ok(['InvalidArgument', 'Unsupported'].includes(error.kind), inspect(error))
      for (const shown of [error.message, error.stack, inspect(error), JSON.stringify(error)]) {
        assert.ok(!shown.includes(password), shown)
      }
    }),
  )
  await check(
    fc.asyncProperty(fc.anything(), async (address) => {
      const error = await errorOf(() => new Client(address, {}))
      if (error !== null) assert.ok(error instanceof OnelockError, inspect(error))
    }),
  )
})

test('a proof that is none is refused', async () => {
  const client = new Client('memory://')
  const held = await client.lock('x').acquire()
  const real = (await client.lock('y').acquire()).detach()
  const shapes = fc.oneof(
    fc.anything(),
    text(),
    fc.nat(real.length).map((at) => `${real.slice(0, at)}!${real.slice(at)}`),
  )
  await check(
    fc.asyncProperty(shapes, async (proof) => {
      const error = await errorOf(() => client.lock('x').attach(proof))
      if (!(error instanceof LockLostError)) refused(error)
    }),
  )
  assert.ok(held.held)
  await held.release()
  await client.close()
})

test('a gate admits what is not lower than the highest', () => {
  const tokens = fc.array(fc.oneof(fc.nat(20), fc.maxSafeNat()))
  fc.assert(
    fc.property(tokens, (given) => {
      const gate = new FenceGate()
      let highest = 0
      for (const token of given) {
        assert.equal(gate.admit(token), token >= highest)
        if (token > highest) highest = token
        assert.equal(gate.highest, highest)
      }
    }),
  )
  const others = fc.anything().filter((token) => !Number.isSafeInteger(token))
  const outside = fc.oneof(
    others,
    fc.maxSafeInteger().map((token) => -1 - Math.abs(token)),
    fc.constant(2 ** 53),
  )
  fc.assert(fc.property(outside, (token) => assert.throws(() => new FenceGate().admit(token), InvalidArgumentError)))
})

test('any order of calls on a lock and its leases', async () => {
  const steps = fc.array(fc.constantFrom('acquire', 'try', 'release', 'extend', 'detach', 'attach', 'look'), {
    maxLength: 30,
  })
  await check(
    fc.asyncProperty(steps, async (calls) => {
      const client = new Client('memory://')
      const lock = client.lock('x')
      let [lease, held, proof, last] = [null, false, null, -1]
      const granted = (found) => {
        assert.ok(found.fencingToken > last)
        ;[lease, held, last] = [found, true, found.fencingToken]
      }
      for (const call of calls) {
        const busy = held || proof !== null
        if (call === 'acquire') {
          if (busy) assert.ok((await errorOf(() => lock.acquire({ timeout: 0 }))) instanceof LockBusyError)
          else granted(await lock.acquire({ timeout: 0 }))
        } else if (call === 'try') {
          const found = await lock.tryAcquire()
          assert.equal(found === null, busy)
          if (found !== null) granted(found)
        } else if (call === 'attach' && proof !== null) {
          lease = await lock.attach(proof)
          assert.equal(lease.fencingToken, last)
          ;[held, proof] = [true, null]
        } else if (lease !== null && call === 'release') {
          assert.equal(await lease.release(), held ? 'released' : 'already_released')
          held = false
        } else if (lease !== null && call === 'extend') {
          const error = await errorOf(() => lease.extend(40_000))
          assert.equal(error?.code, held ? undefined : 'ERR_ONELOCK_NOT_HELD')
        } else if (lease !== null && call === 'detach') {
          if (held) proof = lease.detach()
          else assert.throws(() => lease.detach(), { code: 'ERR_ONELOCK_NOT_HELD' })
          held = false
        }
        if (lease !== null) {
          assert.deepEqual([lease.held, lease.remaining > 0, lease.holdCount], [held, held, held ? 1 : 0])
          assert.equal(lease.loss, null)
        }
        assert.equal(await lock.isLocked(), held || proof !== null)
        assert.equal(client.stats().held, held ? 1 : 0)
      }
      await client.close()
    }),
  )
})
