# frozen_string_literal: true

require_relative "helper"

# The examples run, and what the README shows runs.
class TestDocumentation < OnelockTest
  SAYS = {
    "acquire" => /the order is ours, fencing token \d+/, "lost_lease" => /example:report was lost: taken.*not finished/m,
    "only_one" => /1 of 3 ran the job/, "downloads" => /never more than three: true/, "transfer" => /a has 75, b has 25/
  }.freeze

  def test_the_examples_run
    files = Dir[File.join(ROOT, "bindings-ruby/examples/*.rb")]
    assert_equal SAYS.keys.sort, files.map { |file| File.basename(file, ".rb") }.sort
    files.each { |file| assert_match SAYS.fetch(File.basename(file, ".rb")), ruby("load ARGV[0]", file) }
  end

  # What the programs of the README use.
  AROUND = <<~RUBY
    def charge(order, fence: nil) = order
    def write(chunk, fence: nil) = chunk
    def order = 42
    def chunks = [1, 2]
    require "onelock"
    client = Onelock::Client.new
  RUBY

  def test_what_the_readme_shows_runs
    readme = File.read(File.join(ROOT, "bindings-ruby/README.md"))
    programs = readme.scan(/^```ruby\n(.*?)^```/m).flatten
    assert_operator programs.size, :>, 2
    programs.each { |program| assert_empty ruby(AROUND + program.sub('"redis://localhost"', "")), program }
  end

  def test_every_public_class_and_method_is_documented
    undocumented = Dir[File.join(ROOT, "bindings-ruby/lib/onelock/*.rb")].flat_map do |file|
      lines = File.readlines(file, chomp: true)
      next [] if file.end_with?("native.rb")

      lines.each_index.select { |at| undocumented?(lines, at) }.map { |at| "#{File.basename(file)}: #{lines[at].strip}" }
    end
    assert_empty undocumented
  end

  # Public methods stand in a class two levels deep, before its `private`.
  def undocumented?(lines, at)
    return false unless lines[at].match?(/\A(  class|    def (?!initialize|inspect\b|kind|number|retryable)) *\w/)
    return false if lines[0..at].reverse.take_while { |line| !line.start_with?("  class", "  module") }.any?(/\A    private\z/)

    !lines[at - 1].lstrip.start_with?("#") && !lines[at - 1].end_with?("= nil")
  end

  def test_the_readme_names_every_kind_and_error_that_it_promises
    readme = File.read(File.join(ROOT, "bindings-ruby/README.md"))
    %w[semaphore multi_lock reentrant_lock fair_lock rw_lock].each do |kind|
      assert_includes readme, "client.#{kind}("
      assert Onelock::Client.method_defined?(kind)
    end
    readme.scan(/`lease\.(\w+\??)/).flatten.each { |name| assert Onelock::Lease.method_defined?(name), name }
    readme.scan(/`client\.(\w+\??)/).flatten.each { |name| assert Onelock::Client.method_defined?(name), name }
    readme.scan(/`lock\.(\w+\??)/).flatten.each { |name| assert Onelock::Lock.method_defined?(name), name }
  end
end
