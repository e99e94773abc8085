// Every example runs to a good end.
const assert = require('node:assert/strict')
const { spawn } = require('node:child_process')
const { readdirSync } = require('node:fs')
const { join } = require('node:path')
const test = require('node:test')
const { forTests, start } = require('./support/server.cjs')

const at = forTests(test)
const folder = join(__dirname, '..', 'examples')

/** The address of the server, or of three where an example is about that. */
async function address(t, example) {
  if (example !== 'redlock.mjs') return at.server.url
  const others = [await start(), await start()]
  t.after(() => Promise.all(others.map((server) => server.kill())))
  const hosts = [at.server, ...others].map(({ port }) => `127.0.0.1:${port}`)
  // they are young, and would not vote yet
  return `redlock://${hosts}?quarantine_ms=0`
}

for (const example of readdirSync(folder)) {
  test(example, async (t) => {
    const env = { ...process.env, ONELOCK_URL: await address(t, example) }
    const child = spawn(process.execPath, ['--no-warnings', join(folder, example)], { env, timeout: 60_000 })
    let [out, err] = ['', '']
    child.stdout.on('data', (text) => {
      out += text
    })
    child.stderr.on('data', (text) => {
      err += text
    })
    const code = await new Promise((resolve) => child.on('close', resolve))
    assert.equal(code, 0, `${out}\n${err}`)
    assert.equal(err, '')
    assert.notEqual(out, '')
    // nothing is left locked, but what is meant to stay for a while
    const left = await at.server.send('KEYS', 'example:*')
    assert.deepEqual(
      left.filter((key) => !key.startsWith('example:report:')),
      [],
    )
  })
}
