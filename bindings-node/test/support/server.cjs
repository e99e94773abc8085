// A real server as a child process, on a free port of the loopback interface; it ends with the test.
const { spawn } = require('node:child_process')
const { randomInt } = require('node:crypto')
const { mkdtempSync, rmSync, readdirSync } = require('node:fs')
const net = require('node:net')
const { tmpdir } = require('node:os')
const { join } = require('node:path')

const folder = process.env.ONELOCK_SERVERS ?? join(__dirname, '..', '..', '..', '.tools', 'bin')
const FLAVOURS = readdirSync(folder).filter((name) => /^[a-z]+-server-/.test(name))

/** A port that nobody uses just now, between those of the Rust tests and those that the system gives to whoever connects. */
function freePort() {
  const port = randomInt(21_000, 32_000)
  return new Promise((resolve) => {
    const probe = net.createServer()
    probe.on('error', () => resolve(freePort()))
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(port)))
  })
}

/** Sends commands over a connection of its own, and tells the replies: enough of the protocol for tests. */
class Wire {
  #socket
  #buffer = ''
  #waiting = []

  constructor(port) {
    this.#socket = net.connect(port, '127.0.0.1')
    this.#socket.setEncoding('latin1')
    this.#socket.on('data', (text) => this.#read(text))
    this.#socket.on('error', (error) => this.#fail(error))
    this.#socket.on('close', () => this.#fail(new Error('the connection was closed')))
    this.#socket.unref()
  }

  send(...words) {
    const parts = words.map((word) => Buffer.from(typeof word === 'number' ? String(word) : word).toString('latin1'))
    this.#socket.write(
      `*${parts.length}\r\n${parts.map((part) => `$${part.length}\r\n${part}\r\n`).join('')}`,
      'latin1',
    )
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }))
  }

  end() {
    this.#socket.destroy()
  }

  #fail(error) {
    for (const { reject } of this.#waiting.splice(0)) reject(error)
  }

  #read(text) {
    this.#buffer += text
    for (;;) {
      const parsed = parse(this.#buffer, 0)
      if (parsed === undefined) return
      this.#buffer = this.#buffer.slice(parsed.end)
      this.#waiting.shift()?.resolve(parsed.value)
    }
  }
}

function parse(text, at) {
  const line = text.indexOf('\r\n', at)
  if (line < 0) return undefined
  const head = text.slice(at + 1, line)
  const next = line + 2
  switch (text[at]) {
    case '+':
      return { value: head, end: next }
    case '-':
      return { value: new Error(head), end: next }
    case ':':
      return { value: Number(head), end: next }
    case '$': {
      const length = Number(head)
      if (length < 0) return { value: null, end: next }
      if (text.length < next + length + 2) return undefined
      return { value: text.slice(next, next + length), end: next + length + 2 }
    }
    case '*': {
      const items = []
      let end = next
      for (let left = Number(head); left > 0; left -= 1) {
        const item = parse(text, end)
        if (item === undefined) return undefined
        items.push(item.value)
        end = item.end
      }
      return { value: items, end }
    }
    default:
      throw new Error(`a reply of an unknown type: ${head}`)
  }
}

class Server {
  constructor(flavour, port, child, directory) {
    this.flavour = flavour
    this.port = port
    this.url = `redis://127.0.0.1:${port}/`
    this.child = child
    this.directory = directory
    this.wire = new Wire(port)
  }

  send(...words) {
    return this.wire.send(...words)
  }

  /** Stops answering, as a machine that hangs; until `cont`. */
  stop() {
    this.child.kill('SIGSTOP')
  }

  cont() {
    this.child.kill('SIGCONT')
  }

  /** Every connection but this one's is cut. */
  async cut() {
    await this.send('CLIENT', 'KILL', 'SKIPME', 'yes')
  }

  async kill() {
    this.wire.end()
    const gone = new Promise((resolve) => this.child.once('exit', resolve))
    this.child.kill('SIGKILL')
    if (this.child.exitCode === null && this.child.signalCode === null) await gone
    rmSync(this.directory, { recursive: true, force: true })
  }
}

async function start(flavour = 'valkey-server-9.1', port = undefined) {
  for (let attempt = 0; ; attempt += 1) {
    const chosen = port ?? (await freePort())
    const directory = mkdtempSync(join(tmpdir(), 'onelock-node-'))
    const words = ['--port', chosen, '--bind', '127.0.0.1', '--save', '', '--dir', directory, '--logfile', 'log']
    const child = spawn(join(folder, flavour), words.map(String), { stdio: 'ignore' })
    if (await answers(child, chosen)) return new Server(flavour, chosen, child, directory)
    rmSync(directory, { recursive: true, force: true })
    if (attempt === 5) throw new Error(`${flavour} does not start`)
  }
}

async function answers(child, port) {
  for (let round = 0; round < 500; round += 1) {
    if (child.exitCode !== null) return false
    const wire = new Wire(port)
    const said = await wire.send('INFO', 'server').catch(() => null)
    wire.end()
    // it may be another one that answers there, and ours about to find the port taken
    if (typeof said === 'string' && said.includes(`process_id:${child.pid}\r`)) return true
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  child.kill('SIGKILL')
  return false
}

/** A server for the tests of one file. */
function forTests(test, flavour) {
  const at = {}
  test.before(async () => Object.assign(at, { server: await start(flavour) }))
  test.after(() => at.server?.kill())
  return at
}

/** Waits until the condition holds. */
async function until(condition, what = 'a condition', limit = 30_000) {
  const end = Date.now() + limit
  for (;;) {
    const value = await condition()
    if (value) return value
    if (Date.now() > end) throw new Error(`${what} did not come true within ${limit} ms`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

module.exports = { FLAVOURS, forTests, start, until }
