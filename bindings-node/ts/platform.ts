// The name of a platform, as it stands in the names of native modules and packages: linux-x64-gnu, darwin-arm64 ...

/** The platform that this program runs on. */
export function platform(): string {
  const system = `${process.platform}-${process.arch}`
  if (process.platform === 'win32') return `${system}-msvc`
  if (process.platform !== 'linux') return system
  return `${system}-${isGlibc() ? 'gnu' : 'musl'}`
}

function isGlibc(): boolean {
  // a report lists network interfaces too, which can take long where names are resolved for them
  const report = process.report as (NodeJS.ProcessReport & { excludeNetwork?: boolean }) | undefined
  if (report === undefined) return true
  const before = report.excludeNetwork
  report.excludeNetwork = true
  const { header } = report.getReport() as { header?: { glibcVersionRuntime?: string } }
  if (before !== undefined) report.excludeNetwork = before
  return header?.glibcVersionRuntime !== undefined
}
