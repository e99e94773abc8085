/**
 * What a client does, for `prom-client`: its counters, and histograms of waiting and holding.
 *
 * ```ts
 * import { register } from 'prom-client'
 * import { registerStats } from 'onelock/prometheus'
 *
 * registerStats(client, register)
 * ```
 *
 * The package `prom-client` is not needed by `onelock` itself. A scrape asks the client only, not the server; what is locked on a
 * server, `onelock export` (the command) tells.
 *
 * @packageDocumentation
 */

import type { Durations, Stats } from './client'

/** Where metrics are registered: a `Registry` of `prom-client`. */
export interface MetricRegistry {
  /** Adds a metric. */
  registerMetric(metric: never): void
}

/** What {@link registerStats} may be told. */
export interface StatsMetricsOptions {
  /** What the names of the metrics begin with, before an underscore. Default `onelock`. */
  prefix?: string
  /** Put on every metric, to tell processes or servers apart. */
  labels?: Readonly<Record<string, string>>
}

const GAUGES = {
  held: 'Leases held now.',
  waiting: 'Acquires waiting now.',
  cleaning: 'Clean-ups that are not finished yet.',
} as const

const COUNTERS = {
  acquired: 'Acquires that were granted, re-entries included.',
  busy: 'Tries that found the lock busy.',
  timeouts: 'Acquires that timed out.',
  cancelled: 'Acquires that their caller cancelled.',
  failed: 'Acquires that failed for another reason.',
  released: 'Leases that their holder released.',
  lost: 'Leases lost.',
  renewals: 'Renewals that were confirmed.',
  renewalsMissed: 'Renewal rounds of a lease that were missed.',
  reconnects: 'Connections made after the first one.',
  commandsSent: 'Requests sent to the server.',
} as const

const HISTOGRAMS = {
  wait: 'How long granted acquires waited, in seconds.',
  hold: 'How long leases were held, in seconds.',
} as const

interface Sample {
  value: number
  labels: Record<string, string>
  metricName?: string
}

/** What `prom-client` asks of a metric: one that is read when it is scraped. */
class StatsMetric {
  readonly aggregator = 'sum'

  constructor(
    readonly name: string,
    readonly help: string,
    readonly type: 'gauge' | 'counter' | 'histogram',
    readonly read: () => Sample[],
  ) {}

  async get(): Promise<{ name: string; help: string; type: string; aggregator: string; values: Sample[] }> {
    const { name, help, type, aggregator } = this
    return { name, help, type, aggregator, values: this.read() }
  }

  /** The counters are the client's, which go on. */
  reset(): void {}
}

/**
 * Registers the `stats()` of a client: `onelock_held`, `onelock_acquired_total`, `onelock_wait_seconds` ...
 *
 * A scrape reads the client as it is then, without I/O. One registry takes each name once: give a second client another `prefix`.
 */
export function registerStats(
  client: { stats(): Stats },
  registry: MetricRegistry,
  options: StatsMetricsOptions = {},
): void {
  const { prefix = 'onelock', labels = {} } = options
  const add = (metric: StatsMetric): void => registry.registerMetric(metric as never)
  for (const [field, help] of Object.entries(GAUGES) as [keyof typeof GAUGES, string][]) {
    const read = (): Sample[] => [{ value: client.stats()[field], labels: { ...labels } }]
    add(new StatsMetric(`${prefix}_${snake(field)}`, help, 'gauge', read))
  }
  for (const [field, help] of Object.entries(COUNTERS) as [keyof typeof COUNTERS, string][]) {
    const read = (): Sample[] => [{ value: client.stats()[field], labels: { ...labels } }]
    add(new StatsMetric(`${prefix}_${snake(field)}_total`, help, 'counter', read))
  }
  for (const [field, help] of Object.entries(HISTOGRAMS) as [keyof typeof HISTOGRAMS, string][]) {
    const name = `${prefix}_${field}_seconds`
    add(new StatsMetric(name, help, 'histogram', () => histogram(name, client.stats()[field], labels)))
  }
}

/** Upper bounds in seconds, each with the number of durations up to it, and the sum and the number of all. */
function histogram(name: string, times: Durations, labels: Readonly<Record<string, string>>): Sample[] {
  const bucket = (le: string, value: number): Sample => ({
    metricName: `${name}_bucket`,
    value,
    labels: { ...labels, le },
  })
  let number = 0
  // the last bucket has no bound
  const bounded = times.buckets.slice(0, -1).map((count, power) => {
    number += count
    return bucket(String(2 ** power / 1e6), number)
  })
  return [
    ...bounded,
    bucket('+Inf', times.count),
    { metricName: `${name}_sum`, value: times.sum / 1000, labels: { ...labels } },
    { metricName: `${name}_count`, value: times.count, labels: { ...labels } },
  ]
}

/** `renewalsMissed` as Prometheus spells it. */
function snake(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
}
