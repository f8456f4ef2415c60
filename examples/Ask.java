// Translates a text with a served model: docs/serving/client.md, From Java, Go, curl.
import com.google.protobuf.ByteString;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import java.util.concurrent.TimeUnit;
import serving.PredictionServiceGrpc;
import serving.Serving.*;

public class Ask {
  public static void main(String[] arguments) {
    ManagedChannel channel = ManagedChannelBuilder.forAddress("localhost", 8500).usePlaintext().build();
    TensorProto text =
        TensorProto.newBuilder()
            .setDtype(DataType.DT_STRING)
            .setTensorShape(
                TensorShapeProto.newBuilder().addDim(TensorShapeProto.Dim.newBuilder().setSize(1)))
            .addStringVal(ByteString.copyFromUtf8("She is eating a green apple."))
            .build();
    PredictResponse response =
        PredictionServiceGrpc.newBlockingStub(channel)
            .withDeadlineAfter(10, TimeUnit.SECONDS)
            .predict(
                PredictRequest.newBuilder()
                    .setModelSpec(ModelSpec.newBuilder().setName("en-fr").setSignatureName("translate"))
                    .putInputs("text", text)
                    .build());
    System.out.println(
        response.getOutputsOrThrow("translation").getStringVal(0).toStringUtf8()
            + " " + response.getOutputsOrThrow("score").getFloatVal(0));
    channel.shutdown();
  }
}
