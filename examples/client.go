// Translates a text with a served model: docs/serving/client.md, From Java, Go, curl.
package main

import (
    "context"
    "fmt"
    "log"
    "time"

    "example/serving"
    "google.golang.org/grpc"
)

func main() {
    connection, err := grpc.Dial("localhost:8500", grpc.WithInsecure())
    if err != nil {
        log.Fatal(err)
    }
    defer connection.Close()
    ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
    defer cancel()
    texts := [][]byte{[]byte("She is eating a green apple.")}
    response, err := serving.NewPredictionServiceClient(connection).Predict(ctx, &serving.PredictRequest{
        ModelSpec: &serving.ModelSpec{Name: "en-fr", SignatureName: "translate"},
        Inputs: map[string]*serving.TensorProto{"text": {
            Dtype:       serving.DataType_DT_STRING,
            TensorShape: &serving.TensorShapeProto{Dim: []*serving.TensorShapeProto_Dim{{Size: int64(len(texts))}}},
            StringVal:   texts,
        }},
    })
    if err != nil {
        log.Fatal(err)
    }
    fmt.Println(string(response.Outputs["translation"].StringVal[0]), response.Outputs["score"].FloatVal[0])
}
