// Pronounces words with a pronouncer of your own, from its ONNX folder. Needs .NET 6 or newer.
//
//   dotnet new console --output pronounce
//   cp examples/Pronounce.cs pronounce/Program.cs
//   dotnet add pronounce package Microsoft.ML.OnnxRuntime
//   dotnet run --project pronounce -- models/mine-onnx/1 choir "a long word"
//
// In your own program: using (var model = new Pronouncer("models/mine-onnx/1")) model.Pronounce("choir").Phones

#nullable disable

using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text;
using System.Text.Json;
using System.Text.RegularExpressions;
using Microsoft.ML.OnnxRuntime;

/// <summary>A word's phones, their mean score, and the probability of all phones and the end.</summary>
public sealed class Pronunciation
{
    public IReadOnlyList<string> Phones { get; set; }
    public double Score { get; set; }
    public double Probability { get; set; }
}

/// <summary>Pronounces words; several threads may share one object.</summary>
public sealed class Pronouncer : IDisposable
{
    const int Unknown = 1, End = 3, First = 4; // ids 0 to 3 are special

    readonly InferenceSession session;
    readonly JsonElement settings, spelling;
    readonly bool hasSpelling, decomposed;
    readonly Dictionary<string, long> ids = new Dictionary<string, long>();
    readonly Dictionary<string, string> small = new Dictionary<string, string>(); // of capitals
    readonly string[] phones;

    /// <summary>Opens a folder that was exported with --format onnx.</summary>
    public Pronouncer(string folder)
    {
        var manifest = Read(folder, "manifest.json");
        settings = manifest.GetProperty("settings");
        hasSpelling = manifest.TryGetProperty("spelling", out spelling) && spelling.ValueKind == JsonValueKind.Object;
        var tokenizers = manifest.GetProperty("tokenizers");
        var source = Read(folder, tokenizers.GetProperty("source").GetProperty("file").GetString());
        phones = Tokens(Read(folder, tokenizers.GetProperty("target").GetProperty("file").GetString()));
        decomposed = source.GetProperty("kind").GetString() == "letters";
        foreach (var token in Tokens(source)) ids[token] = First + ids.Count;
        if (source.TryGetProperty("cases", out var cases))
            foreach (var pair in cases.EnumerateObject()) small[pair.Name] = pair.Value.GetString();
        session = new InferenceSession(Path.Combine(folder, "translator.onnx")); // reads weights.bin, too
    }

    static JsonElement Read(string folder, string name) =>
        JsonDocument.Parse(File.ReadAllText(Path.Combine(folder, name))).RootElement;

    static string[] Tokens(JsonElement file) =>
        file.GetProperty("tokens").EnumerateArray().Select(x => x.GetString()).ToArray();

    static OrtValue Numbers(long[] values, params long[] shape) => OrtValue.CreateTensorValueFromMemory(values, shape);

    /// <summary>Returns the phones of a word, none of an empty one.</summary>
    public Pronunciation Pronounce(string word)
    {
        var letters = Letters(word);
        var tag = TagLength(letters);
        var size = letters.Length - tag;
        var firsts = new List<int>(); // of the letters that each window decides
        if (size > 0) firsts.Add(0);
        int context = 0;
        if (hasSpelling && size > spelling.GetProperty("whole").GetInt32())
        {
            context = spelling.GetProperty("context").GetInt32();
            var window = spelling.GetProperty("window").GetInt32();
            for (var at = window - context; at < size - context; at += window - 2 * context) firsts.Add(at);
        }
        var kept = new List<Step>();
        double scores = 0;
        for (var n = 0; n < firsts.Count; n++)
        {
            var end = n + 1 < firsts.Count ? firsts[n + 1] : size;
            var start = Math.Max(0, firsts[n] - context);
            var stop = Math.Min(size, end + context);
            var own = letters.Skip(tag + start).Take(stop - start);
            var (score, steps) = Ask(letters.Take(tag).Concat(own).ToArray());
            scores += score;
            foreach (var step in steps)
            {
                var place = start + Math.Max(0, step.Place - tag);
                var inside = firsts.Count == 1 || (place >= firsts[n] && place < end);
                if (step.Id == End ? end == size : step.Id > End && inside) kept.Add(step);
            }
        }
        return new Pronunciation
        {
            Phones = kept.Where(step => step.Id > End).Select(step => phones[step.Id - First]).ToArray(),
            Score = scores / Math.Max(1, firsts.Count),
            Probability = Math.Exp(kept.Sum(step => (double)step.LogProb)),
        };
    }

    public void Dispose() => session.Dispose();

    long[] Letters(string word)
    {
        var text = word.Replace("\ufeff", "").Normalize(NormalizationForm.FormC).Trim();
        if (decomposed) text = text.Normalize(NormalizationForm.FormD);
        foreach (var pair in small)
            if (pair.Key.EnumerateRunes().Count() > 1) text = text.Replace(pair.Key, pair.Value);
        if (small.ContainsKey("Σ") && ids.ContainsKey("ς"))
            text = Regex.Replace(text, @"(?<=[\p{L}\p{M}])Σ(?![\p{L}\p{M}])", "ς");
        return text.EnumerateRunes().Select(rune => IdOf(rune.ToString()))
            .Take(settings.GetProperty("max_source_length").GetInt32()).ToArray();
    }

    long IdOf(string letter)
    {
        if (ids.TryGetValue(letter, out var id)) return id;
        if (!small.TryGetValue(letter, out var lower)) lower = letter.ToLowerInvariant();
        return ids.TryGetValue(lower, out id) ? id : Unknown;
    }

    // Return how many ids in front of a word are its tag, such as "[cy] ".
    int TagLength(long[] letters)
    {
        if (!hasSpelling || !spelling.TryGetProperty("tag", out var tag)) return 0;
        if (letters.Length == 0 || letters[0] != tag.GetProperty("open").GetInt64()) return 0;
        var size = Array.IndexOf(letters, tag.GetProperty("close").GetInt64()) + 1;
        if (size > 0 && size < letters.Length && letters[size] == tag.GetProperty("space").GetInt64()) size++;
        return size <= tag.GetProperty("longest").GetInt32() && size < letters.Length ? size : 0;
    }

    // Return the score of the best answer to letters, and a step for each of its tokens, the end included.
    (double, List<Step>) Ask(long[] letters)
    {
        var inputs = new Dictionary<string, OrtValue>
        {
            ["ids"] = Numbers(letters, 1, letters.Length),
            ["beam_width"] = Numbers(new[] { settings.GetProperty("beam_width").GetInt64() }, 1),
            ["num_results"] = Numbers(new long[] { 1 }, 1),
            ["length_penalty"] = OrtValue.CreateTensorValueFromMemory(
                new[] { settings.GetProperty("length_penalty").GetSingle() }, new long[0]),
            ["with_weights"] = OrtValue.CreateTensorValueFromMemory(new[] { true }, new long[] { 1 }),
        };
        using (var options = new RunOptions())
        using (var outputs = session.Run(options, inputs, new[] { "found", "log_probs", "weights", "scores" }))
        {
            foreach (var input in inputs.Values) input.Dispose();
            var values = outputs.ToArray();
            var found = values[0].GetTensorDataAsSpan<long>().ToArray();
            var logProbs = values[1].GetTensorDataAsSpan<float>().ToArray();
            var weights = values[2].GetTensorDataAsSpan<float>().ToArray();
            var score = values[3].GetTensorDataAsSpan<float>().ToArray()[0];
            var steps = new List<Step>();
            for (var t = 0; t < found.Length && (t == 0 || found[t - 1] != End); t++)
            {
                var attended = weights.Skip(t * letters.Length).Take(letters.Length).ToArray();
                var place = Array.IndexOf(attended, attended.Max());
                steps.Add(new Step { Id = (int)found[t], LogProb = logProbs[t], Place = place });
            }
            return (score, steps);
        }
    }

    struct Step
    {
        public int Id; // of the token
        public float LogProb;
        public int Place; // the letter with the largest attention weight
    }
}

public static class Program
{
    public static void Main(string[] arguments)
    {
        Console.OutputEncoding = new UTF8Encoding(false);
        using (var model = new Pronouncer(arguments[0]))
            foreach (var word in arguments.Skip(1))
            {
                var said = model.Pronounce(word);
                Console.WriteLine(FormattableString.Invariant(
                    $"{word}\t{string.Join(" ", said.Phones)}\t{said.Probability:F4}"));
            }
    }
}
