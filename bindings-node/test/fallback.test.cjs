// Where libuv's functions cannot be found, no socket is watched by the event loop: everything goes over the background.
const assert = require('node:assert/strict')
const { execFileSync, spawnSync } = require('node:child_process')
const { mkdtempSync, rmSync } = require('node:fs')
const { tmpdir } = require('node:os')
const { join } = require('node:path')
const test = require('node:test')
const programs = require('./support/programs.cjs')
const { forTests, until } = require('./support/server.cjs')

const at = forTests(test)
const folder = mkdtempSync(join(tmpdir(), 'onelock-node-'))
const hiding = join(folder, 'without-libuv.so')
test.before(() => {
  const source = join(__dirname, 'support', 'without-libuv.c')
  execFileSync('cc', ['-Wall', '-Werror', '-shared', '-fPIC', '-o', hiding, source, '-ldl'], { stdio: 'inherit' })
})
test.after(() => rmSync(folder, { recursive: true }))

/** How many connections a client has after a few calls. */
async function connections(env) {
  const program = `
    const client = new Client(url)
    const work = async () => {
      for (let round = 0; round < 3; round += 1) await (await client.lock('a').acquire()).release()
      say('ready')
    }
    work()
    setInterval(() => {}, 1000)`
  const run = programs.start(at.server.url, program, { env })
  try {
    await until(() => run.out === 'ready\n' || run.child.exitCode !== null, 'the calls')
    assert.equal(run.child.exitCode, null, run.err)
    const list = await at.server.send('CLIENT', 'LIST')
    return list.split('\n').filter((line) => line.includes('lib-name=onelock')).length
  } finally {
    run.child.kill('SIGKILL')
    await run.ended
  }
}

test('the event loop has a connection of its own, except without libuv', async () => {
  assert.equal(await connections({}), 2)
  assert.equal(await connections({ LD_PRELOAD: hiding }), 1)
})

test('without libuv the same tests pass', () => {
  const files = ['abort', 'basics', 'loss', 'using', 'workers'].map((name) => join(__dirname, `${name}.test.cjs`))
  // the runner takes its tests for its own when it finds itself in the environment
  const { NODE_TEST_CONTEXT: _, ...env } = { ...process.env, LD_PRELOAD: hiding }
  const words = ['--test', '--test-reporter=tap', ...files]
  const ran = spawnSync(process.execPath, words, { env, encoding: 'utf8', timeout: 400_000 })
  assert.equal(ran.status, 0, ran.stdout + ran.stderr)
  const counted = (what) => Number(new RegExp(`^# ${what} (\\d+)$`, 'm').exec(ran.stdout)[1])
  assert.ok(counted('pass') >= 50, ran.stdout)
  assert.deepEqual([counted('fail'), counted('cancelled'), counted('skipped'), counted('todo')], [0, 0, 0, 0])
})
