// Node.js, and what has its modules: Deno, Bun.

import { randomFillSync } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createConnection, isIP, type Socket } from 'node:net'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { type ConnectionOptions, connect as connectTls } from 'node:tls'
import { type Connection, End, type Host, type Target, type Told } from './host'

/** What the errors of sockets mean. */
const ENDS: Record<string, number> = {
  ECONNRESET: End.reset,
  EPIPE: End.reset,
  ECONNREFUSED: End.refused,
  ETIMEDOUT: End.timedOut,
  EMFILE: End.limit,
  ENFILE: End.limit,
  ENOBUFS: End.limit,
  ENOMEM: End.limit,
}

/** After so long without a byte a connection is probed. */
const KEEPALIVE_IDLE = 10_000

function endOf(error: NodeJS.ErrnoException, target: Target): number {
  const code = error.code ?? ''
  if (code === 'ENOENT' && target.path !== undefined) return End.notFound
  if (code.startsWith('ERR_TLS') || code.includes('CERT') || code.includes('SELF_SIGNED')) return End.certificate
  return ENDS[code] ?? End.other
}

function encrypted(host: string, port: number, tls: NonNullable<Target['tls']>): Socket {
  const options: ConnectionOptions = { host, port, rejectUnauthorized: !tls.anyCertificate }
  // an IP address is not allowed there
  if (isIP(host) === 0) options.servername = host
  if (tls.ca !== undefined) options.ca = readFileSync(tls.ca)
  if (tls.cert !== undefined) options.cert = readFileSync(tls.cert)
  if (tls.key !== undefined) options.key = readFileSync(tls.key)
  if (tls.anyName) options.checkServerIdentity = () => undefined
  return connectTls(options)
}

function open(target: Target): Socket {
  if (target.path !== undefined) return createConnection({ path: target.path })
  const host = target.host ?? 'localhost'
  const port = target.port ?? 6379
  if (target.tls !== undefined) return encrypted(host, port, target.tls)
  return createConnection({ host, port })
}

/** Connections with bytes that have not left. */
const unsent = new Set<SocketConnection>()

class SocketConnection implements Connection {
  readonly #socket: Socket
  #pending: Uint8Array[] = []
  #over = false

  constructor(target: Target, told: Told) {
    const socket = open(target)
    this.#socket = socket
    const end = (number: number, why: string) => {
      if (this.#over) return
      this.#over = true
      told.closed(number, why)
    }
    socket.setNoDelay(true)
    socket.setKeepAlive(true, KEEPALIVE_IDLE)
    // calls keep the process alive, connections do not
    socket.unref()
    socket.on(target.tls === undefined ? 'connect' : 'secureConnect', () => {
      if (!this.#over) told.opened()
    })
    socket.on('data', (bytes: Uint8Array) => {
      if (!this.#over) told.received(bytes)
    })
    socket.on('error', (error: NodeJS.ErrnoException) => end(endOf(error, target), error.message))
    socket.on('close', () => end(End.closed, 'the connection was closed'))
    socket.on('end', () => end(End.closed, 'the server closed the connection'))
  }

  write(bytes: Uint8Array): void {
    this.#pending.push(bytes)
    if (this.#pending.length > 1) return
    unsent.add(this)
    queueMicrotask(() => this.flush())
  }

  /** What was written by all tasks of one turn leaves together. */
  flush(): void {
    const pending = this.#pending
    unsent.delete(this)
    if (pending.length === 0 || this.#over) return
    this.#pending = []
    this.#socket.write(pending.length === 1 ? pending[0]! : Buffer.concat(pending))
  }

  close(): void {
    this.flush()
    this.#over = true
    this.#socket.destroy()
  }
}

/** A connection that could not be begun. */
function failed(error: unknown, told: Told): Connection {
  let over = false
  const why = error instanceof Error ? error.message : String(error)
  setImmediate(() => {
    if (!over) told.closed(End.certificate, why)
  })
  return {
    write() {},
    close() {
      over = true
    },
  }
}

let timer: NodeJS.Timeout | undefined
let keeper: NodeJS.Timeout | undefined

/** The host that Node.js is. */
export const host: Host = {
  monotonic: () => performance.now(),
  wall: () => Date.now(),
  random(bytes) {
    randomFillSync(bytes)
  },
  name: hostname(),
  processId: process.pid,
  dial(target, told) {
    try {
      return new SocketConnection(target, told)
    } catch (error) {
      // a file with certificates
      return failed(error, told)
    }
  },
  setAlarm(milliseconds, ring) {
    clearTimeout(timer)
    timer = setTimeout(ring, Math.min(Math.ceil(milliseconds), 0x7fff_ffff))
    timer.unref()
  },
  flush() {
    for (const connection of unsent) connection.flush()
  },
  keepAlive(alive) {
    if (alive) {
      keeper ??= setInterval(() => undefined, 0x7fff_ffff)
      keeper.ref()
    } else {
      keeper?.unref()
    }
  },
}

/** The module's bytes, beside this file. */
export function code(): WebAssembly.Module {
  return new WebAssembly.Module(readFileSync(join(__dirname, 'onelock.wasm')))
}
