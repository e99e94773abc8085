// What the module asks of its host. Nothing here may call back into the module before it has returned.

/** Where a connection goes. */
export interface Target {
  /** A socket in the file system. */
  path?: string
  host?: string
  port?: number
  /** Asked for when it is there; the files are PEM. */
  tls?: { ca?: string; cert?: string; key?: string; anyCertificate: boolean; anyName: boolean }
}

/** Why a connection was not made or has ended; the module knows these numbers. */
export const End = {
  closed: 0,
  reset: 1,
  refused: 2,
  timedOut: 3,
  notFound: 4,
  unsupported: 5,
  limit: 6,
  certificate: 7,
  other: 8,
} as const

/** What a connection tells. */
export interface Told {
  opened(): void
  received(bytes: Uint8Array): void
  closed(end: number, why: string): void
}

/** A connection, opened or not. */
export interface Connection {
  /** Sends these bytes behind the ones before. They may be kept. */
  write(bytes: Uint8Array): void
  /** Ends it. Nothing more is told of it. */
  close(): void
}

/** A host. */
export interface Host {
  /** Milliseconds on a clock that never goes back. */
  monotonic(): number
  /** Milliseconds since 1970. */
  wall(): number
  random(bytes: Uint8Array): void
  /** The name of the machine, and the number of the process; for inspection. */
  name: string
  processId: number
  dial(target: Target, told: Told): Connection
  /** Calls `ring` in so many milliseconds, and not when it was set before. */
  setAlarm(milliseconds: number, ring: () => void): void
  /** Sends at once what was written. */
  flush(): void
  /** Whether the process is to go on while nothing but calls of this library keep it. */
  keepAlive(alive: boolean): void
}
