// The name of the platform in the names of native modules and packages: linux-x64-gnu, darwin-arm64 ...

/** The platform of this process. */
export function platform(): string {
  const system = `${process.platform}-${process.arch}`
  if (process.platform === 'win32') return `${system}-msvc`
  if (process.platform !== 'linux') return system
  return `${system}-${isGlibc() ? 'gnu' : 'musl'}`
}

function isGlibc(): boolean {
  // without network interfaces: resolving their names can take long
  const report = process.report as (NodeJS.ProcessReport & { excludeNetwork?: boolean }) | undefined
  if (report === undefined) return true
  const before = report.excludeNetwork
  report.excludeNetwork = true
  const { header } = report.getReport() as { header?: { glibcVersionRuntime?: string } }
  if (before !== undefined) report.excludeNetwork = before
  return header?.glibcVersionRuntime !== undefined
}
