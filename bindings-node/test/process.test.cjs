// The process: what keeps it alive, how it ends, what a blocked event loop and a broken server do to it.
const assert = require('node:assert/strict')
const test = require('node:test')
const { setUp } = require('./support/clients.cjs')
const programs = require('./support/programs.cjs')
const { start: startServer, until } = require('./support/server.cjs')

const { at, fresh } = setUp(test)
const root = require('node:path').join(__dirname, '..')
const STRICT = ['--unhandled-rejections=strict', '--throw-deprecation']

/** Runs a program to its end, which must be a good one. */
async function well(source, flags = STRICT, limit = 20_000) {
  const ended = await programs.run(at.server.url, source, { flags, limit })
  assert.deepEqual([ended.code, ended.signal, ended.err], [0, null, ''], ended.err)
  return ended
}

const exists = (name) => at.server.send('EXISTS', name)

test('loading the package starts nothing', async () => {
  const { out } = await well(`
    say(require('node:fs').readdirSync('/proc/self/task').map((id) =>
      require('node:fs').readFileSync('/proc/self/task/' + id + '/comm', 'utf8').trim()).join())
    new Client(url)
    say(require('node:fs').readdirSync('/proc/self/task').map((id) =>
      require('node:fs').readFileSync('/proc/self/task/' + id + '/comm', 'utf8').trim()).join())`)
  assert.ok(!out.includes('onelock'), out)
})

test('a program that forgets to close ends, and releases what it held', async () => {
  const name = fresh()
  const { took } = await well(`
    new Client(url).lock('${name}').acquire().then((lease) => {
      globalThis.lease = lease
      lease.on('lost', () => {})
      lease.on('jeopardy', () => {})
      lease.signal
    })`)
  assert.equal(await exists(name), 0)
  assert.ok(took < 25_000, `${took} ms`)
})

test('waiting keeps the process alive', async () => {
  const name = fresh()
  await at.server.send('SET', name, 'foreign')
  const program = programs.start(
    at.server.url,
    `
    new Client(url).lock('${name}').acquire().then((lease) => { say('got it'); return lease.release() })
    say('waiting')`,
  )
  await until(() => program.out.includes('waiting'))
  await new Promise((resolve) => setTimeout(resolve, 300))
  assert.equal(program.child.exitCode, null)
  await at.server.send('DEL', name)
  const { code, out } = await program.ended
  assert.equal(code, 0)
  assert.match(out, /got it/)
})

test('a body of using keeps the process alive, also when it waits for nothing but the loss', async () => {
  for (const wait of ["require('node:events').once(lease, 'lost')", "require('node:events').once(signal, 'abort')"]) {
    const name = fresh()
    const program = programs.start(
      at.server.url,
      `
      new Client(url, { ttl: 300 }).lock('${name}').using(async (signal, lease) => {
        say('held')
        await ${wait}
        say('heard')
      }).catch((error) => say(error.code))`,
    )
    await until(() => program.out.includes('held'))
    // longer than a process takes to notice that it has nothing to do
    await new Promise((resolve) => setTimeout(resolve, 200))
    assert.equal(program.child.exitCode, null)
    await at.server.send('DEL', name)
    const { code, out } = await program.ended
    assert.deepEqual([code, out], [0, 'held\nheard\nERR_ONELOCK_LOST\n'])
  }
})

test('waiting that was cancelled does not', async () => {
  const name = fresh()
  await at.server.send('SET', name, 'foreign')
  await well(`
    const controller = new AbortController()
    const waiting = new Client(url).lock('${name}').acquire({ signal: controller.signal })
    waiting.catch(() => say('cancelled'))
    setTimeout(() => controller.abort(), 50)`)
  await at.server.send('DEL', name)
})

test('process.exit while holding and while waiting', async () => {
  const [held, busy] = [fresh(), fresh()]
  await at.server.send('SET', busy, 'foreign')
  const { code, took } = await programs.run(
    at.server.url,
    `
    const client = new Client(url)
    client.lock('${busy}').acquire().catch(() => {})
    client.lock('${held}').acquire().then(() => process.exit(7))`,
    { flags: STRICT },
  )
  assert.equal(code, 7)
  assert.ok(took < 25_000, `${took} ms`)
  assert.equal(await exists(held), 0)
  await at.server.send('DEL', busy)
})

test('an exception that nobody catches', async () => {
  const name = fresh()
  const { code, err } = await programs.run(
    at.server.url,
    `
    new Client(url).lock('${name}').acquire().then(() => { throw new Error('of the program') })`,
  )
  assert.equal(code, 1)
  assert.match(err, /of the program/)
  assert.equal(await exists(name), 0)
})

test('a process that is killed: its lock ends with the ttl', async () => {
  const name = fresh()
  const program = programs.start(
    at.server.url,
    `
    new Client(url).lock('${name}', { ttl: 4000 }).acquire().then(() => { say('held'); setInterval(() => {}, 1000) })`,
  )
  await until(() => program.out.includes('held'))
  program.child.kill('SIGKILL')
  await program.ended
  assert.equal(await exists(name), 1)
  await until(async () => (await exists(name)) === 0)
})

test('the end does not hang at a server that is silent', async () => {
  const server = await startServer()
  try {
    const program = programs.start(
      server.url,
      `
      new Client(url).lock('x').acquire().then(async () => {
        say('held')
        await pause(300)
        say('exit ' + Date.now())
        process.exit(3)
      })`,
    )
    await until(() => program.out.includes('held'))
    server.stop()
    const { code, out } = await program.ended
    const took = Date.now() - Number(out.match(/exit (\d+)/)[1])
    assert.equal(code, 3)
    assert.ok(took < 4500, `${took} ms`)
  } finally {
    server.cont()
    await server.kill()
  }
})

test('an event loop that is blocked for three ttl loses nothing', async () => {
  const { out } = await well(`
    new Client(url).lock('${fresh()}', { ttl: 1000 }).acquire().then(async (lease) => {
      lease.on('lost', () => say('lost'))
      block(3000)
      say(lease.held + ' ' + lease.signal.aborted)
      await pause(20)
      say(lease.held + ' ' + (await lease.release()))
    })`)
  assert.equal(out, 'true false\ntrue released\n')
})

test('no rejection is left unhandled when the server is cut and killed during renewal', async () => {
  const server = await startServer()
  const program = programs.start(
    server.url,
    `
    const client = new Client(url, { requestTimeout: 100, connectTimeout: 100 })
    const all = Array.from({ length: 20 }, (_, index) =>
      client.lock('x' + index, { ttl: 600, renewEvery: 10 }).acquire().then((lease) => {
        lease.signal
        lease.on('lost', () => {})
        return lease
      }))
    client.lock('y').acquire()
    Promise.all(all).then(async (leases) => {
      say('held')
      const timer = setInterval(() => {}, 1000)
      while (leases.some((lease) => lease.held)) await pause(10)
      await pause(50)
      say('lost ' + leases.filter((lease) => lease.signal.aborted).length)
      for (const lease of leases) say(await lease.release())
      clearInterval(timer)
    })`,
    { flags: STRICT },
  )
  await until(() => program.out.includes('held'))
  for (let round = 0; round < 10; round += 1) {
    await server.cut()
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  assert.equal(program.child.exitCode, null)
  await server.kill()
  const { code, out, err } = await program.ended
  assert.deepEqual([code, err], [0, ''])
  assert.match(out, /lost 20/)
})

test('a lease that nobody has any more is released, with a warning', async () => {
  const name = fresh()
  const ended = await programs.run(
    at.server.url,
    `
    const client = new Client(url)
    process.on('warning', (warning) => say(warning.name + ' ' + warning.code + ' ' + warning.message))
    async function leak() {
      const lease = await client.lock('${name}').acquire()
      lease.on('lost', () => {})
    }
    async function main() {
      await leak()
      while (await client.lock('${name}').isLocked()) { gc(); await pause(5) }
      say('free')
      // one that was released, one that is kept by its signal, and one that is in use are no leaks
      await (await client.lock('a').acquire()).release()
      const { signal } = await client.lock('b').acquire()
      const kept = await client.lock('c').acquire()
      for (let round = 0; round < 20; round += 1) { gc(); await pause(5) }
      say('b ' + (await client.lock('b').isLocked()) + ' ' + signal.aborted)
      say('c ' + kept.held)
    }
    main()`,
    { flags: ['--expose-gc', ...STRICT] },
  )
  assert.equal(ended.code, 0, ended.err)
  const lines = ended.out.trim().split('\n')
  assert.match(
    lines[0],
    /^OnelockWarning ONELOCK_LEASE_LEAKED a lease of "name-.*" was garbage-collected while it was held/,
  )
  assert.deepEqual(lines.slice(1), ['free', 'b true false', 'c true'])
})

test('a client that nobody has any more ends its connection', async () => {
  const connections = async () => (await at.server.send('CLIENT', 'LIST')).split('lib-name=onelock').length - 1
  await until(async () => (await connections()) === 0, 'the end of earlier ones')
  const program = programs.start(
    at.server.url,
    `
    async function use() {
      const client = new Client(url)
      await (await client.lock('${fresh()}').acquire()).release()
    }
    use().then(() => {
      say('used')
      setInterval(gc, 10)
    })`,
    { flags: ['--expose-gc', ...STRICT] },
  )
  await until(() => program.out.includes('used'))
  await until(async () => (await connections()) === 0, 'the end of the connection')
  assert.equal(program.child.exitCode, null)
  program.child.kill()
  await program.ended
})

test('many leases leave no memory behind', async () => {
  const { out } = await well(
    `
    const client = new Client('memory://')
    async function cycles(count) {
      for (let round = 0; round < count; round += 1) {
        const lease = await client.lock('x').acquire()
        lease.signal
        await lease.release()
        if (round % 3 === 0) await client.lock('y').tryAcquire().then((lease) => lease.release())
      }
      for (let round = 0; round < 5; round += 1) { gc(); await pause(1) }
      return process.memoryUsage()
    }
    async function main() {
      // the first rounds also fill the allocators' own stores
      await cycles(20000)
      await cycles(50000)
      const before = await cycles(50000)
      const after = await cycles(50000)
      const grown = (what) => (after[what] - before[what]) / 2 ** 20
      say(JSON.stringify([grown('heapUsed'), grown('external'), grown('rss')]))
    }
    main()`,
    ['--expose-gc', ...STRICT],
    180_000,
  )
  const [heap, external, resident] = JSON.parse(out)
  assert.ok(heap < 2 && external < 2 && resident < 24, `${out} MiB`)
})

for (const signal of ['SIGTERM', 'SIGINT']) {
  test(`${signal} releases what is held, and still ends the process`, async () => {
    const [name, kept] = [fresh(), fresh()]
    const program = programs.start(
      at.server.url,
      `
      const { releaseOnSignal } = require(${JSON.stringify(root)})
      releaseOnSignal()
      releaseOnSignal('${signal}')
      const main = async () => {
        const client = new Client(url)
        const { Redlock } = require(${JSON.stringify(`${root}/dist/redlock.js`)})
        const Redis = require(${JSON.stringify(require.resolve('ioredis'))})
        const redlock = new Redlock([new Redis(url, { lazyConnect: true })])
        await redlock.acquire(['${kept}'], 20_000)
        await client.lock('${name}').using(() => { say('held'); return new Promise(() => {}) })
      }
      main()`,
    )
    await until(() => program.out.includes('held') || program.child.exitCode !== null, 'the lock')
    program.child.kill(signal)
    const ended = await program.ended
    assert.deepEqual([ended.code, ended.signal, ended.err], [null, signal, ''])
    assert.equal(await exists(name), 0)
    assert.equal(await exists(kept), 1)
  })
}

test('a signal that the program listens to itself is left alone', async () => {
  const name = fresh()
  const program = programs.start(
    at.server.url,
    `
    const { releaseOnSignal } = require(${JSON.stringify(root)})
    process.once('SIGTERM', async () => {
      say('asked')
      await pause(50)
      say(held.held)
      process.exit(3)
    })
    releaseOnSignal()
    let held
    new Client(url).lock('${name}').acquire().then((lease) => { held = lease; say('held') })
    setInterval(() => {}, 1000)`,
  )
  await until(() => program.out.includes('held'), 'the lock')
  program.child.kill('SIGTERM')
  const { code, out } = await program.ended
  assert.deepEqual([code, out], [3, 'held\nasked\ntrue\n'])
  assert.equal(await exists(name), 0)
})

test('a signal that nobody can listen to is refused', () => {
  const { releaseOnSignal, InvalidArgumentError } = require('onelock')
  assert.throws(() => releaseOnSignal('SIGKILL'), InvalidArgumentError)
  assert.throws(() => releaseOnSignal('SIGNOTHING'), InvalidArgumentError)
})
